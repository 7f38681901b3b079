"""Foreign keys: the rows of a table refer to rows of another one, or of their own, by a key of it.

    FOREIGN KEY (a, b) REFERENCES other (x, y) MATCH FULL ON DELETE CASCADE

A foreign key belongs to the table that refers. It is an object of the catalog beside the table's
definition, since two tables may refer to each other. Columns are given by their present names.
"""

from collections.abc import Sequence
from typing import Literal as OneOf

import msgspec

from foreshore.ids import GlobalId

THIS_TABLE = GlobalId("")  # of a plan: the table that is created

Action = OneOf["no action", "restrict", "cascade", "set null", "set default"]


class ForeignKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """A foreign key; `delete_columns` are those that ON DELETE SET changes, if not all."""

    name: str
    oid: int
    columns: tuple[str, ...]
    references: GlobalId
    referenced: tuple[str, ...]
    match_full: bool = False
    on_delete: Action = "no action"
    on_update: Action = "no action"
    delete_columns: tuple[str, ...] = ()
    deferrable: bool = False
    deferred: bool = False  # INITIALLY DEFERRED
    valid: bool = True  # False: NOT VALID, so rows that were there before may break it

    def renamed(self, table: GlobalId, own: GlobalId, old: str, new: str) -> "ForeignKey":
        """Return the foreign key of table `own` after a column of `table` was renamed."""

        def now(names: Sequence[str]) -> tuple[str, ...]:
            return tuple(new if name == old else name for name in names)

        found = self
        if own == table:
            found = msgspec.structs.replace(
                found, columns=now(found.columns), delete_columns=now(found.delete_columns)
            )
        if self.references == table:
            found = msgspec.structs.replace(found, referenced=now(found.referenced))
        return found


def rule_text(key: ForeignKey, table: str, quoted: Sequence[Sequence[str]]) -> str:
    """Return a foreign key as PostgreSQL writes it, without its name.

    `table` is the referenced table's name; `quoted` are the columns, those referenced and those of
    ON DELETE SET as identifiers.
    """
    columns, referenced, set_columns = (", ".join(names) for names in quoted)
    text = f"FOREIGN KEY ({columns}) REFERENCES {table}({referenced})"
    if key.match_full:
        text += " MATCH FULL"
    if key.on_update != "no action":
        text += f" ON UPDATE {key.on_update.upper()}"
    if key.on_delete != "no action":
        text += f" ON DELETE {key.on_delete.upper()}"
        if set_columns:
            text += f" ({set_columns})"
    if key.deferrable:
        text += " DEFERRABLE"
    if key.deferred:
        text += " INITIALLY DEFERRED"
    return text if key.valid else f"{text} NOT VALID"
