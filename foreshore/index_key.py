"""A key of an index as PostgreSQL shows it. Its order has no effect here."""

import re
from dataclasses import dataclass

_CALL = re.compile(r"([a-z_][a-z0-9_]*+)\(.*\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class IndexKey:
    """An expression, and in which order its values are."""

    text: str
    descending: bool = False
    nulls_first: bool = False

    @property
    def shown(self) -> str:
        """Return an expression as pg_get_indexdef writes it: in parentheses, if it is no call."""
        text = self.text
        is_enclosed = text.startswith("(") and text.endswith(")")
        return text if _CALL.fullmatch(text) or is_enclosed else f"({text})"

    @property
    def name(self) -> str:
        """Return the name of an expression as a column of the index."""
        call = _CALL.fullmatch(self.text)
        return call[1] if call else "expr"

    @property
    def order(self) -> str:
        """Return the order as pg_get_indexdef writes it, empty for the default."""
        if self.descending:
            return " DESC" if self.nulls_first else " DESC NULLS LAST"
        return " NULLS FIRST" if self.nulls_first else ""

    @property
    def option(self) -> int:
        """Return the order as pg_index.indoption has it."""
        return 1 * self.descending + 2 * self.nulls_first


DEFAULT = IndexKey("expr")
