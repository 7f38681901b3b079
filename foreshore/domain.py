"""Domains: a type with constraints for its values.

A value of a domain is a value of its base type. The constraints are checked where a value becomes
one of the domain: in a cast, and in the column of a table.
"""

from dataclasses import dataclass

from foreshore.expr.ir import Scalar
from foreshore.types import SqlType


@dataclass(frozen=True, slots=True)
class DomainCheck:
    """A CHECK: `condition` is over the value as `Column(0)`, and written as `text`."""

    name: str
    condition: Scalar
    text: str


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain with its full name. `checks` include those of a domain that it is based on."""

    parts: tuple[str, ...]
    base: SqlType
    not_null: bool = False
    checks: tuple[DomainCheck, ...] = ()
    default: Scalar | None = None
    default_text: str | None = None  # as it is shown

    @property
    def name(self) -> str:
        """Return the name without qualifiers."""
        return self.parts[-1]
