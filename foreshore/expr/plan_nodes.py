"""The nodes of a plan that people and tools read, as text or as a document of JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct


class PlanNode(Struct, frozen=True):
    """An operator: its kind, a word or two; what it does; its rows, if constant; its inputs."""

    kind: str
    detail: str = ""
    rows: tuple[str, ...] = ()
    inputs: "tuple[PlanNode, ...]" = ()

    def lines(self, depth: int = 0) -> Iterator[str]:
        """Yield the lines of the node and its inputs, indented from `depth` on."""
        yield f"{'  ' * depth}{self.kind} {self.detail}".rstrip(" ")
        yield from (f"{'  ' * depth}  {row}" for row in self.rows)
        for each in self.inputs:
            yield from each.lines(depth + 1)

    def document(self) -> dict[str, Any]:
        """Return the node as PostgreSQL's EXPLAIN writes one in JSON."""
        found: dict[str, Any] = {"Node Type": self.kind}
        if self.detail:
            found["Detail"] = self.detail
        if self.rows:
            found["Rows"] = list(self.rows)
        if self.inputs:
            found["Plans"] = [each.document() for each in self.inputs]
        return found


def text_of(nodes: Sequence[PlanNode]) -> str:
    """Return nodes as text."""
    return "\n".join(line for node in nodes for line in node.lines())


def document_of(nodes: Sequence[PlanNode]) -> dict[str, Any]:
    """Return nodes as one: a plan whose recursions stand before it is one with several parts."""
    if len(nodes) == 1:
        return nodes[0].document()
    return {"Node Type": "Plan", "Plans": [each.document() for each in nodes]}
