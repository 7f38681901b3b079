"""Plans by their text, for all sessions: what many ask is read and planned once.

Clients of the simple protocol, and drivers that prepare nothing by name, send the same text again
and again. A plan depends on the text, the types declared for its parameters and, of the session,
on the database, search path and cluster: these are the key, and the time zone where the plan
depends on it. It also depends on what the session sees of the catalog and on what is maintained,
which are compared when it is looked up.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace

from foreshore.adapter.session.prepared import Basis, Prepared

MOST_TEXTS = 512
LONGEST_TEXT = 16_384  # characters; a longer one hardly comes again


@dataclass(frozen=True, slots=True)
class PlanKey:
    """What a plan is looked up by."""

    text: str
    parameter_oids: tuple[int, ...]
    database: str
    search_path: tuple[str, ...]
    cluster: str
    time_zone: str | None  # None: good in all


class PlanCache:
    """The plans last used, each of a text of one statement."""

    def __init__(self) -> None:
        self._plans: OrderedDict[PlanKey, Prepared] = OrderedDict()

    def get(self, key: PlanKey, basis: Basis) -> Prepared | None:
        """Return a statement for a session to keep, planned; None if none is good on `basis`."""
        everywhere = replace(key, time_zone=None)
        key = everywhere if everywhere in self._plans else key
        known = self._plans.get(key)
        if known is None:
            return None
        assert known.basis is not None
        if not replace(known.basis, variables=basis.variables).is_still(basis):
            del self._plans[key]
            return None
        self._plans.move_to_end(key)
        return replace(known, basis=basis)

    def put(self, key: PlanKey, prepared: Prepared) -> None:
        """Keep what has just been planned, if it may be planned the same for another session."""
        basis = prepared.basis
        if (
            len(key.text) > LONGEST_TEXT
            or prepared.peek is None
            or basis is None
            or basis.own is not None
        ):
            return
        if not prepared.depends_on_zone:
            key = replace(key, time_zone=None)
        self._plans[key] = replace(prepared, name="", batch=None)
        if len(self._plans) > MOST_TEXTS:
            self._plans.popitem(last=False)
