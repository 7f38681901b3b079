"""Outputs: the relations that a source can write, as its external system describes them.

Each has a reference: the name of a table of the external system. A source with a single output has
it under the empty reference, as its own rows. Beside its outputs a source has its progress, which
says how far it has read each part of the external system, and its errors: what could not be read.
The rows of an output that are below its watermark go to a relation of their own.
"""

from collections.abc import Mapping

import msgspec

OWN_ROWS = ""  # the reference of a source's own rows
PROGRESS = ":progress"  # that of its progress
ERRORS = ":errors"  # that of what could not be decoded
LATE = ":late "  # begins that of rows below the watermark, followed by that of the output


class Column(msgspec.Struct, frozen=True):
    """A column, and its type as SQL writes it.

    `missing` is the text of the value in rows from before the column was added; None: NULL. That
    `is_uniform`: otherwise these rows have values of their own.
    """

    name: str
    type: str
    nullable: bool = True
    missing: str | None = None
    is_uniform: bool = True


class Output(msgspec.Struct, frozen=True):
    """The columns of an output, and those by which its rows are unique.

    `details` are for the connector, which gets them back in each start: what it has to know of the
    output as it was when its relation was made. `obstacle` says why it cannot be read, and `hint`
    what helps.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    details: str = ""
    obstacle: str = ""
    hint: str = ""


def without_nulls(key: tuple[str, ...] = (), /, **types: str) -> Output:
    """Return an output of columns without NULLs, by their types, perhaps with a key."""
    return Output(tuple(Column(name, type, False) for name, type in types.items()), key)


NO_ROWS = Output(())  # of a source whose outputs are tables of their own
PROGRESS_OUTPUT = without_nulls(part="text", offset="int8")
ERRORS_OUTPUT = Output(
    (
        Column("part", "text", False),
        Column("offset", "int8", False),
        Column("output", "text"),  # the reference of the output that it was for, if known
        Column("error", "text", False),
        Column("data", "bytea"),  # what could not be decoded
        Column("read_at", "timestamptz", False),
    )
)


def is_auxiliary(reference: str) -> bool:
    """Return whether a relation is no output of the external system."""
    return reference.startswith(":")


def output_called(outputs: Mapping[str, Output], reference: str) -> Output:
    """Return an output, the progress, the errors, or the own rows, which may have no columns.

    KeyError if there is none such.
    """
    match reference:
        case ":progress":
            return PROGRESS_OUTPUT
        case ":errors":
            return ERRORS_OUTPUT
        case "":
            return outputs.get(OWN_ROWS, NO_ROWS)
    return outputs[reference]
