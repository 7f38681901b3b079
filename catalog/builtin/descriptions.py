"""Descriptions of the system's objects.

Those of functions, operators, types and others are in PostgreSQL's words: `descriptions.tsv`, as
`tests/catalog/record.py` writes it. Those of Foreshore's relations are in `mz_descriptions.tsv`: of
a relation by its name, of a column by both names, or by `*` and its own where all have the same.
"""

from collections.abc import Iterator, Sequence
from functools import cache

from foreshore.catalog.builtin.functions import recorded
from foreshore.catalog.builtin.relation import Builtin, Row

_RELATIONS = 1259  # the oid of pg_class


@cache
def descriptions() -> tuple[dict[str, object], ...]:
    """Return the rows of pg_description about objects of the system."""
    return tuple(
        {"classoid": int(relation), "objoid": int(oid), "description": text}
        for relation, oid, text in recorded("descriptions")
    )


@cache
def _relation_texts() -> dict[str, str]:
    return {name: text for name, text in recorded("mz_descriptions")}


def relation_description(relation: str, column: str | None = None) -> str | None:
    """Return what is said of a relation of Foreshore, or of one of its columns."""
    texts = _relation_texts()
    if column is None:
        return texts.get(relation)
    return texts.get(f"{relation}.{column}") or texts.get(f"*.{column}")


def relation_descriptions(builtins: Sequence[Builtin]) -> Iterator[Row]:
    """Yield the rows of pg_description about Foreshore's relations and their columns."""
    for builtin in builtins:
        text = relation_description(builtin.name)
        if text is None:
            continue
        columns = (relation_description(builtin.name, name) for name in builtin.desc.names)
        for position, each in enumerate([text, *columns]):
            if each is not None:
                yield {
                    "classoid": _RELATIONS,
                    "objoid": builtin.oid,
                    "objsubid": position,
                    "description": each,
                }
