"""Descriptions of the system's functions, operators, types and others, in PostgreSQL's words.

`descriptions.tsv` has them, as `tests/catalog/record.py` writes it.
"""

from functools import cache

from foreshore.catalog.builtin.functions import recorded


@cache
def descriptions() -> tuple[dict[str, object], ...]:
    """Return the rows of pg_description about objects of the system."""
    return tuple(
        {"classoid": int(relation), "objoid": int(oid), "description": text}
        for relation, oid, text in recorded("descriptions")
    )
