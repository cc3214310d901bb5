"""The base of every section of `lakeproof.yaml`; the sections themselves are in `model.py` and `location.py`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """The base of every section: unknown keys are mistakes, values don't change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True)
