"""Sources as SQL describes them and ingestion runs them, and the tables that come of them.

A source has *outputs*, each with a reference: the name of a table of the external system. A source
with a single output has it under the empty reference, as its own rows. Beside them it has its
progress: how far it has read each part of the external system.
"""

from collections.abc import Mapping
from typing import Literal as OneOf
from typing import TypeAlias

import msgspec

from foreshore.types import (
    INT4,
    INT8,
    TEXT,
    TIMESTAMPTZ,
    ColumnType,
    RelationDesc,
    SqlType,
)

OWN_ROWS = ""  # the reference of a source's own rows
PROGRESS = "progress"  # that of its progress
GENERATORS = ("counter", "auction")


class LoadGenerator(msgspec.Struct, frozen=True, tag="load generator"):
    """Rows that are made up, one tick after another, and are the same in each run."""

    generator: OneOf["counter", "auction"]
    tick_ms: int = 1000
    up_to: int | None = None  # the number of ticks, after which it rests


SourceSpec: TypeAlias = LoadGenerator


def _desc(*columns: tuple[str, SqlType]) -> RelationDesc:
    """Return a relation without NULLs."""
    names = tuple(name for name, _ in columns)
    return RelationDesc(names, tuple(ColumnType(type, False) for _, type in columns))


NO_ROWS = RelationDesc((), ())  # of a source whose outputs are tables of their own
PROGRESS_DESC = _desc(("part", TEXT), ("offset", INT8))
_OUTPUTS: Mapping[str, Mapping[str, RelationDesc]] = {
    "counter": {OWN_ROWS: _desc(("counter", INT8))},
    "auction": {
        "organizations": _desc(("id", INT8), ("name", TEXT)),
        "users": _desc(("id", INT8), ("org_id", INT8), ("name", TEXT)),
        "accounts": _desc(("id", INT8), ("org_id", INT8), ("balance", INT8)),
        "auctions": _desc(
            ("id", INT8), ("seller", INT8), ("item", TEXT), ("end_time", TIMESTAMPTZ)
        ),
        "bids": _desc(
            ("id", INT8),
            ("buyer", INT8),
            ("auction_id", INT8),
            ("amount", INT4),
            ("bid_time", TIMESTAMPTZ),
        ),
    },
}


def outputs_of(spec: SourceSpec) -> Mapping[str, RelationDesc]:
    """Return the outputs of a source, by their references."""
    return _OUTPUTS[spec.generator]


def output_desc(spec: SourceSpec, reference: str) -> RelationDesc:
    """Return the columns of an output, or of the progress; KeyError if there is none such."""
    if reference == PROGRESS:
        return PROGRESS_DESC
    outputs = outputs_of(spec)
    return outputs.get(reference, NO_ROWS) if reference == OWN_ROWS else outputs[reference]


class Feed(msgspec.Struct, frozen=True):
    """The source that writes the rows of a relation, and the output that they are."""

    source: str  # the id of the source, which may be the relation itself
    reference: str
    spec: SourceSpec | None = None  # of the source itself
