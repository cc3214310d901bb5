"""The tables of a source that a person names in a job's configuration.

What is done with them does not belong here.
"""

from __future__ import annotations

from collections.abc import Sequence

from assets.support.engine_call import failure
from lakeproof.config.mistakes import nearest_table
from lakeproof.config.model import SourceConfig
from lakeproof.config.table_names import parse_table, write_table
from lakeproof.errors import ConfigError, LakeproofError
from lakeproof.names import TableName


def chosen_tables(source: SourceConfig, names: Sequence[str], verb: str) -> list[TableName]:
    """Return the tables; raises dagster.Failure if one is not the source's, or none is named."""
    try:
        tables = list(dict.fromkeys(map(parse_table, names)))
        unknown = [table for table in tables if table not in source.tables]
        if unknown:
            near = nearest_table(unknown[0], source.tables)
            remedy = (
                f"did you mean {near}?" if near else f"name tables of it: {', '.join(map(write_table, source.tables))}"
            )
            raise ConfigError(f"table {unknown[0]}", f"source {source.name} does not have it", remedy)
        if not tables:
            raise ConfigError("tables", "none is named", f"name the tables to {verb}")
    except LakeproofError as error:
        raise failure(error) from error
    except ValueError as error:
        raise failure(ConfigError("tables", str(error), "write each as schema.table")) from error
    return tables
