"""Collations: what COLLATE may name, and of which types. Texts sort as in C, whatever it says."""

import re

from foreshore.errors import DatatypeMismatch, UndefinedObject
from foreshore.types import SqlType

BYTEWISE = frozenset({"default", "C", "POSIX", "ucs_basic", "C.UTF-8", "C.utf8"})

# What PostgreSQL calls those of the operating system and of ICU.
_LOCALE = re.compile(r"[a-z]{2,3}_[A-Z]{2}(\.[\w-]+)?(@\w+)?|[a-z]{2,3}(-\w+)*-x-icu|unicode")


def check_collation(name: str, at: int) -> None:
    """Raise UndefinedObject unless PostgreSQL may have a collation called `name`, here or not."""
    if name not in BYTEWISE and _LOCALE.fullmatch(name) is None:
        raise UndefinedObject(
            f'collation "{name}" for encoding "UTF8" does not exist', position=at + 1
        )


def check_collatable(type: SqlType, at: int) -> None:
    """Raise DatatypeMismatch unless a type is of texts."""
    if (type.element or type).name not in ("text", "varchar", "bpchar", "name"):
        raise DatatypeMismatch(f"collations are not supported by type {type}", position=at + 1)
