"""Plans as JSON: nodes with their inputs in them, and other lines as nodes by their indentation."""

import json
import re
from collections.abc import Sequence
from typing import Any

from foreshore.expr.plan_nodes import PlanNode, document_of

# The kind that begins a line: `Arrangement: rows`, `Delta join of operators 1, 2`, `Engine: spark`.
_KIND = re.compile(r"([A-Za-z][A-Za-z ]*?)(?::|(?= (?:on|of|by) )|(?=,)|(?= \()|$)[, ]*")


def plan_as_json(before: str, nodes: Sequence[PlanNode], after: str) -> str:
    """Return a document with a plan, how it is run, and the sections of text that follow it."""
    shown: dict[str, Any] = {}
    if nodes:
        shown["Plan"] = document_of(nodes)
    how, *steps = before.splitlines() or [""]
    if how:
        path, _, where = how.partition(", ")
        shown |= {"Access Path": path} | ({"Where": where} if where else {})
    if steps:
        shown["Steps"] = nested_lines(steps)
    for each in after.strip("\n").split("\n\n") if after else ():
        heading, *lines = each.splitlines()
        shown[heading.removesuffix(":")] = nested_lines(lines)
    return json.dumps([shown], indent=2, ensure_ascii=False)


def nested_lines(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Return lines as nodes; those that are indented below another are within it."""
    root: dict[str, Any] = {}
    above: list[tuple[int, dict[str, Any]]] = [(-1, root)]
    for line in lines:
        indent = len(line) - len(line.lstrip())
        node = _node(line.strip())
        while above[-1][0] >= indent:
            above.pop()
        above[-1][1].setdefault("Plans", []).append(node)
        above.append((indent, node))
    return list(root.get("Plans", ()))


def _node(line: str) -> dict[str, Any]:
    """Return a line as a node: its kind, and what else it says."""
    number, _, titled = line.removeprefix("Operator ").partition(": ")
    has_number = line.startswith("Operator ") and number.isdigit()
    text = titled if has_number else line
    found = _KIND.match(text)
    kind, detail = ("Step", text) if found is None else (found[1], text[found.end() :])
    if found is None and (word := text.partition(" "))[0].isalpha():
        kind, _, detail = word
    node: dict[str, Any] = {"Node Type": kind}
    if has_number:
        node["Operator"] = int(number)
    if detail:
        node["Detail"] = detail
    return node
