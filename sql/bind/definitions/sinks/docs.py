"""Bind DOC ON: what the Avro schemas of a sink say of its rows and their columns."""

from collections.abc import Sequence

from msgspec.structs import replace

from foreshore.errors import InvalidParameterValue, SyntaxError_, UndefinedColumn
from foreshore.sources.formats import AvroFormat, Format
from foreshore.sql import ast
from foreshore.sql.bind.definitions.sinks.written import Written
from foreshore.sql.bind.planning import Planning, located


def with_docs(
    planning: Planning, format: Format, docs: Sequence[ast.DocSyntax], of: str, rows: Written
) -> Format:
    """Return the format of keys or values (`of`) with the texts that are for them.

    One that names KEY or VALUE comes before one for both. Raises InvalidParameterValue if a text
    is of another relation than the sink's, UndefinedColumn, or SyntaxError_ if it is given twice.
    """
    found: dict[str | None, str] = {}
    for each in sorted(docs, key=lambda each: each.of != ""):
        _check(planning, each, rows)
        if any(each is not other and _is_same(each, other) for other in docs):
            raise SyntaxError_("DOC ON is given twice", position=each.at + 1)
        if each.of in ("", of) and (of == "value" or each.column in (None, *rows.key)):
            found[each.column] = each.text
    if not found:
        return format
    if not isinstance(format, AvroFormat):
        raise InvalidParameterValue("DOC ON is for FORMAT AVRO", position=docs[0].at + 1)
    doc = found.pop(None, None)
    columns = [(name, text) for name, text in found.items() if name is not None]
    return replace(format, doc=doc, column_docs=tuple(columns))


def _is_same(one: ast.DocSyntax, other: ast.DocSyntax) -> bool:
    return (one.of, one.column) == (other.of, other.column)


def _check(planning: Planning, doc: ast.DocSyntax, rows: Written) -> None:
    """Raise unless a text is of the relation that the sink writes, or of a column of it."""
    with located(doc.at):
        if planning.catalog.resolve_item(doc.relation).name != rows.name:
            raise InvalidParameterValue(
                f'DOC ON "{doc.relation[-1]}" is of another relation than the sink'
            )
        if doc.column is not None and doc.column not in rows.desc.names:
            raise UndefinedColumn(f'column "{doc.column}" does not exist')
        if doc.of == "key" and doc.column not in (None, *rows.key):
            raise InvalidParameterValue(f'column "{doc.column}" is not in the key')
