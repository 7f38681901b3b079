"""Views over views, each by its own plan (see `catalog/planned.py`)."""

from collections.abc import Callable, Mapping

from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId


class ViewOver:
    """A view's body over the views that it reads, and its relation once it is known.

    `is_named`: the bodies of other views read it by its id; otherwise they contain its relation.

    Two threads may expand a view at once: they find the same.
    """

    def __init__(
        self,
        body: Relation,
        below: Mapping[GlobalId, "ViewOver"],
        expand: Callable[["ViewOver"], Relation],
        *,
        is_named: bool,
    ) -> None:
        self.body, self.below, self.is_named = body, below, is_named
        self.levels: int = 1 + max((each.levels for each in below.values()), default=0)
        self.known: Relation | None = None if below else body
        self._expand = expand

    def relation(self) -> Relation:
        """Return the view's relation over collections."""
        if self.known is None:
            self.known = self._expand(self)
        return self.known
