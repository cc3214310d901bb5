"""Names inside Delta, called over py4j: a transaction's files, deletion vectors, and its one commit.

Finding the rows to delete belongs to `vectors`; checking that these names can be used at all to `self_test`.

The names are public in bytecode and internal by contract: the signatures are those of exactly `DELTA_VERSION`, and Scala's
default arguments do not exist for py4j. Nothing here evaluates a change.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.errors import InvariantError
from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.log import read_commit

DELTA_VERSION = "4.4.0"
# A file's bitmap is passed to the JVM as bytes; a call for each row would cost 0.1 ms.
_BIG_ENDIAN_LONG = ">i8"


class Jvm:
    """The session's JVM, with conversions of Python's values to Scala's."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self.java = cast("Any", session._jvm)
        self.jsession = cast("Any", session._jsparkSession)
        self.delta = self.java.org.apache.spark.sql.delta
        self.none = self.java.scala.Option.empty()
        # Delta asks for the thread's own session in many places; each Python thread has a JVM thread.
        self.java.org.apache.spark.sql.classic.SparkSession.setActiveSession(self.jsession)

    def some(self, value: object) -> Any:
        """Scala's Some."""
        return self.java.scala.Option.apply(value)

    def seq(self, values: Iterable[Any]) -> Any:
        """Scala's Seq."""
        items = self.java.java.util.ArrayList()
        for value in values:
            items.add(value)
        return self.java.scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq()

    def items(self, seq: Any) -> list[Any]:
        """Return a Scala Seq's items."""
        return list(self.java.scala.jdk.javaapi.CollectionConverters.asJava(seq))

    def mapping(self, values: Mapping[str, Any]) -> Any:
        """Scala's immutable Map."""
        entries = self.java.java.util.HashMap()
        for key, value in values.items():
            entries.put(key, value)
        empty = getattr(self.java.scala.collection.immutable, "Map$")
        return getattr(empty.__getattr__("MODULE$"), "from")(
            self.java.scala.jdk.javaapi.CollectionConverters.asScala(entries)
        )

    def longs(self, values: np.ndarray[Any, np.dtype[np.int64]]) -> Any:
        """Scala's Seq[Long]."""
        gateway: Any = self.session.sparkContext._gateway
        array = gateway.new_array(self.java.long, len(values))
        self.java.java.nio.ByteBuffer.wrap(values.astype(_BIG_ENDIAN_LONG).tobytes()).asLongBuffer().get(array)
        return self.java.scala.collection.immutable.ArraySeq.unsafeWrapArray(array)


def delta_version(session: SparkSession) -> str:
    """Return the version of the Delta jar in the session's JVM."""
    return str(Jvm(session).java.io.delta.package.VERSION())


def forget(session: SparkSession, path: str) -> None:
    """Drop the session's cached state of a table's log: files were removed from it."""
    jvm = Jvm(session)
    jvm.delta.DeltaLog.invalidateCache(jvm.jsession, jvm.java.org.apache.hadoop.fs.Path(path))


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file of the table; `url` is its `_metadata.file_path`."""

    action: Any
    url: str

    @property
    def bytes(self) -> int:
        """Its size."""
        return int(self.action.size())

    @property
    def live_rows(self) -> int | None:
        """The number of its rows that are not deleted; None if its statistics lack it."""
        option = self.action.numLogicalRecords()
        return int(option.get()) if option.isDefined() else None

    @property
    def lost_rows(self) -> float:
        """The fraction of its rows that its deletion vector deletes."""
        ratio = self.action.deletedToPhysicalRecordsRatio()
        return float(ratio.get()) if ratio.isDefined() else 0.0

    def key_range(self, physical: str) -> tuple[Any, Any] | None:
        """Return the least and greatest value of a column by the file's statistics; None if they lack it."""
        stats = self.action.stats()
        if stats is None:
            return None
        values = json.loads(stats)
        low, high = values.get("minValues", {}).get(physical), values.get("maxValues", {}).get(physical)
        return None if low is None or high is None else (low, high)


class Transaction:
    """One optimistic transaction on the newest version of the table at `path`."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self.jvm = jvm = Jvm(session)
        self._path = path
        self._log = jvm.delta.DeltaLog.forTable(jvm.jsession, path)
        self._txn = self._log.startTransaction(jvm.none, jvm.none)
        self._snapshot = self._txn.snapshot()
        self._actions: list[Any] = []

    @property
    def version(self) -> int:
        """The version that the transaction has read."""
        return int(self._snapshot.version())

    @cached_property
    def fields(self) -> list[dict[str, Any]]:
        """The table's columns as Delta's schema text has them."""
        return list(json.loads(self._snapshot.metadata().schemaString())["fields"])

    def has_property(self, name: str, value: str) -> bool:
        """True if a property of the table has this value."""
        setting = self._snapshot.metadata().configuration().get(name)
        return bool(setting.isDefined() and str(setting.get()).lower() == value)

    @property
    def is_partitioned(self) -> bool:
        """True if the table has partition columns."""
        return not self._snapshot.metadata().partitionColumns().isEmpty()

    @property
    def features(self) -> frozenset[str]:
        """The table features that its protocol names for writers."""
        protocol = json.loads(self._snapshot.protocol().json())["protocol"]
        return frozenset(protocol.get("writerFeatures", []))

    def physical(self, name: str) -> str:
        """Return the name of a column in the data files."""
        field = next(f for f in self.fields if f["name"] == name)
        return str(field.get("metadata", {}).get("delta.columnMapping.physicalName", name))

    @property
    def file_count(self) -> int:
        """The number of the table's data files; costs a Spark job if the version's checksum file is missing."""
        checksum = self._checksum
        return int(self._snapshot.numOfFiles() if checksum is None else checksum.numFiles())

    @cached_property
    def _checksum(self) -> Any | None:
        """The version's checksum file, if it belongs to this very commit and not to an earlier one of this number."""
        option = self._snapshot.checksumOpt()
        commit = read_commit(self._path, self.version)
        if not option.isDefined() or commit is None or commit.txn_id is None:
            return None
        checksum = option.get()
        txn_id = checksum.txnId()
        return checksum if txn_id.isDefined() and str(txn_id.get()) == commit.txn_id else None

    def files(self) -> list[TableFile]:
        """Return all data files: from the version's checksum file if that lists them, else by a Spark job."""
        listed = self.jvm.none if self._checksum is None else self._checksum.allFiles()
        all_files = self._snapshot.allFiles
        actions = self.jvm.items(listed.get()) if listed.isDefined() else list(all_files().collectAsList())
        root = self._log.dataPath().toString()
        absolute = self.jvm.delta.util.DeltaFileOperations.absolutePath
        spark_path = self.jvm.java.org.apache.spark.paths.SparkPath
        return [TableFile(a, spark_path.fromPath(absolute(root, a.path())).urlEncoded()) for a in actions]

    def frame(self, files: Iterable[TableFile]) -> DataFrame:
        """Return the live rows of some files, with `_metadata`."""
        chosen = self.jvm.seq(f.action for f in files)
        return DataFrame(self._log.createDataFrame(self._snapshot, chosen, False, self.jvm.none), self.jvm.session)

    def read_all(self, files: Iterable[TableFile]) -> None:
        """Declare that everything was read: any other commit that changes data is then a conflict."""
        self._txn.trackFilesRead(self.jvm.seq(f.action for f in files))
        self._txn.readWholeTable()

    def remove_rows(self, hits: Mapping[str, np.ndarray[Any, np.dtype[np.int64]]], files: Iterable[TableFile]) -> int:
        """Delete the rows at these places (file → row numbers); emptied files are removed whole. Returns the count."""
        by_url = {f.url: f.action for f in files if f.url in hits}
        jvm, root = self.jvm, self._log.dataPath()
        store = jvm.delta.storage.dv.HadoopFileSystemDVStore(self._log.newDeltaHadoopConf())
        portable = jvm.delta.deletionvectors.RoaringBitmapArrayFormat.Portable()
        now = int(time.time() * 1000)
        vectors = []
        for url, rows in hits.items():
            action = by_url[url]
            bitmap = jvm.delta.deletionvectors.RoaringBitmapArray.apply(jvm.longs(rows))
            old = action.deletionVector()
            if old is not None:
                bitmap.merge(jvm.delta.deletionvectors.StoredBitmap.create(old, root).load(store))
            deleted = int(bitmap.cardinality())
            if deleted != len(rows) + (0 if old is None else int(old.cardinality())):
                raise InvariantError(url, "a row would be deleted twice", "report this")
            if _known(action.numPhysicalRecords()) == deleted:
                self._actions.append(action.removeWithTimestamp(now, True))
            else:
                bitmap.runOptimize()
                vectors.append((action, bitmap.serializeAsByteArray(portable), deleted))
        for changed in self._with_vectors(vectors):
            self._actions += [changed._1(), changed._2()]
        return sum(len(rows) for rows in hits.values())

    def _with_vectors(self, vectors: list[tuple[Any, bytes, int]]) -> list[Any]:
        """Write bitmaps; return each file's action with its vector, and that of removing the file as it was."""
        if not vectors:
            return []
        jvm, root, result = self.jvm, self._log.dataPath(), []
        store = jvm.delta.storage.dv.HadoopFileSystemDVStore(self._log.newDeltaHadoopConf())
        opened = jvm.delta.commands.DeletionVectorWriter.createWriter(store, store.pathWithFileSystem(root), "")
        writer, file_id = opened._1(), opened._2()
        try:
            for action, data, cardinality in vectors:
                offset = writer.write(data).offset()
                place = jvm.delta.actions.DeletionVectorDescriptor.onDiskWithRelativePath(
                    file_id, "", len(data), cardinality, jvm.some(offset), jvm.none
                )
                result.append(action.removeRows(place, True, True))
        finally:
            writer.close()
        return result

    def add_rows(self, rows: DataFrame) -> int:
        """Write the rows' files; evaluates them. Returns the count."""
        actions = self.jvm.items(self._txn.writeFiles(rows._jdf))
        self._actions += actions
        counts = [_known(action.numPhysicalRecords()) for action in actions]
        return sum(c for c in counts if c is not None)

    def rewrite(self, files: Sequence[TableFile], order: str, count: int = 1) -> None:
        """Replace some files by `count` with the same rows, sorted by the column `order`; evaluates them."""
        jvm, now = self.jvm, int(time.time() * 1000)
        column = F.col(quoted(order))
        rows = self.frame(files)
        rows = rows.coalesce(1) if count == 1 else rows.repartitionByRange(count, column)
        rows = rows.sortWithinPartitions(column)
        for added in jvm.items(self._txn.writeFiles(rows._jdf, jvm.none, True, jvm.seq(()))):
            rest = (getattr(added, f"copy$default${n}")() for n in range(6, 14))
            self._actions.append(
                added.copy(added.path(), added.partitionValues(), added.size(), added.modificationTime(), False, *rest)
            )
        self._actions += [file.action.removeWithTimestamp(now, False) for file in files]

    def commit_rewrite(self) -> int:
        """Commit the rewritten files, which changes no data; returns the version. The table's history shows an OPTIMIZE."""
        jvm = self.jvm
        operation = getattr(jvm.delta, "DeltaOperations$Optimize")(jvm.seq(()), jvm.seq(()), False, jvm.none, False)
        return int(self._txn.commit(jvm.seq(self._actions), operation))

    @property
    def is_empty(self) -> bool:
        """True if nothing is deleted or inserted."""
        return not self._actions

    def commit_append(self, app_id: str, number: int, user_metadata: str) -> int:
        """Commit the added files; returns the version. The table's history shows an append."""
        jvm = self.jvm
        mode = jvm.java.org.apache.spark.sql.SaveMode.Append
        operation = getattr(jvm.delta, "DeltaOperations$Write")(
            mode, jvm.none, jvm.none, jvm.some(user_metadata), *([jvm.none] * 5)
        )
        return self._commit(app_id, number, operation)

    def commit(self, app_id: str, number: int, *, inserted: int, deleted: int) -> int:
        """Commit everything together; returns the version. The table's history shows a MERGE with these counts."""
        counts = {
            "numTargetRowsInserted": inserted,
            "numTargetRowsDeleted": deleted,
            "numTargetRowsUpdated": 0,
            # Delta reads this one under its inner name.
            "operationNumSourceRows": inserted + deleted,
        }
        self.measure(counts)
        jvm = self.jvm
        predicate = getattr(jvm.delta, "DeltaOperations$MergePredicate")
        matched, unmatched = predicate(jvm.none, "delete"), predicate(jvm.none, "insert")
        nothing = jvm.seq(())
        operation = getattr(jvm.delta, "DeltaOperations$Merge")(
            jvm.none, jvm.none, jvm.none, jvm.none, jvm.seq([matched]), jvm.seq([unmatched]), nothing
        )
        return self._commit(app_id, number, operation)

    def measure(self, counts: Mapping[str, int]) -> None:
        """Set the operation's metrics, which the table's history shows."""
        jvm, metrics = self.jvm, {}
        for name, value in counts.items():
            metric = jvm.java.org.apache.spark.sql.execution.metric.SQLMetrics.createMetric(
                jvm.jsession.sparkContext(), name
            )
            metric.set(value)
            metrics[name] = metric
        self._txn.registerSQLMetrics(jvm.jsession, jvm.mapping(metrics))

    def _commit(self, app_id: str, number: int, operation: Any) -> int:
        jvm = self.jvm
        self._actions.append(jvm.delta.actions.SetTransaction(app_id, number, jvm.some(int(time.time() * 1000))))
        return int(self._txn.commit(jvm.seq(self._actions), operation))


def _known(option: Any) -> int | None:
    return int(option.get()) if option.isDefined() else None


def _module(package: Any, name: str) -> Any:
    """Return a Scala object."""
    return getattr(getattr(package, name), "MODULE$")
