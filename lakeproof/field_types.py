"""The types of a document's fields: our own values as JSON has them, and numbers and texts within their bounds.

Documents do not belong here, nor reading and writing them (`lakeproof.storage.document`). To a type checker each of these is
the type that it annotates: an `LsnField` is an `Lsn`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import core_schema

from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, Oid, TableName, Xid
from lakeproof.schema import SchemaVersion


@dataclass(frozen=True, slots=True)
class AsJson:
    """Marks a type with a form of its own in JSON; `read` raises one of `_REFUSALS` if it can't read a value."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    mistake: str
    is_text: ClassVar[bool] = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        form = core_schema.str_schema() if self.is_text else core_schema.any_schema()
        written = core_schema.plain_serializer_function_ser_schema(self.write, return_schema=form)
        return core_schema.no_info_plain_validator_function(self._read, serialization=written)

    def _read(self, value: Any) -> Any:
        if self.is_text and not isinstance(value, str):
            raise ValueError("is not text")
        try:
            return self.read(value)
        except _REFUSALS:
            raise ValueError(self.mistake) from None


_REFUSALS = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True)
class AsText(AsJson):
    """Marks a type that JSON has as text; `read` gets a text."""

    is_text: ClassVar[bool] = True


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(text)
    return int(text)


_FROM_0 = Field(ge=0, lt=1 << 63)
_PATH = r"^[A-Za-z0-9_%-][A-Za-z0-9._%-]*(/[A-Za-z0-9_%-][A-Za-z0-9._%-]*)*$"

Count = Annotated[int, _FROM_0]
# An `_lp_ord`: a snapshot's rows are below 0.
Ordinal = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
OidField = Annotated[Oid, _FROM_0]
XidField = Annotated[Xid, _FROM_0]
IncarnationField = Annotated[Incarnation, _FROM_0]
CycleField = Annotated[CycleNumber, _FROM_0]
LsnField = Annotated[Lsn, AsText(Lsn.parse, str, "is not an LSN")]
# A `TableName.key`; also as the key of an object.
TableField = Annotated[TableName, AsText(TableName.from_key, lambda table: table.key, "is not a table's key")]
# An object's key, in JSON a text of digits.
NumberKey = Annotated[int, AsText(_number, str, "is not a number")]
SchemaField = Annotated[
    SchemaVersion, AsJson(SchemaVersion.from_json, SchemaVersion.to_json, "is not a schema version")
]
AttributeNumber = Annotated[int, Field(gt=0, lt=1 << 63)]
# A `Fingerprint.digest`, or a `SchemaVersion.id`.
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# A path that stays below its folder.
RelativePath = Annotated[str, Field(pattern=_PATH)]
