"""The tools: what a client can call, with which arguments, and for whom."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from foreshore.server.http.mcp import objects, queries, states
from foreshore.server.http.mcp.work import Audience, Work

Run = Callable[[Work, Any], Awaitable[Mapping[str, Any]]]
BOTH: Sequence[Audience] = ("agent", "developer")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool; `arguments` is a struct, whose fields are described."""

    name: str
    title: str
    description: str
    arguments: type[msgspec.Struct]
    run: Run
    audiences: Sequence[Audience] = BOTH

    def listed(self) -> Mapping[str, Any]:
        """Return what `tools/list` says of it."""
        (schema,) = msgspec.json.schema_components([self.arguments])[1].values()
        shown = {name: value for name, value in schema.items() if name != "description"}
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": {**shown, "title": self.title},
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
        }


TOOLS = (
    Tool(
        "list_objects",
        "List objects",
        "List the tables, views and other objects of the database with their comments, and with "
        "estimates of their rows. Begin here.",
        objects.ListObjects,
        objects.list_objects,
    ),
    Tool(
        "describe_object",
        "Describe an object",
        "Describe a table or view: columns with types and comments, keys, indexes, how many "
        "milliseconds it lags behind, and the errors in its data: they make reads of it fail, "
        "or leave rows out where skipped is true.",
        objects.DescribeObject,
        objects.describe_object,
    ),
    Tool(
        "query",
        "Query",
        "Run one read-only query in PostgreSQL's dialect and return its first rows. Integers of 64 "
        "bits and numerics are strings.",
        queries.Query,
        queries.query,
    ),
    Tool(
        "subscribe",
        "Follow a query",
        "Return what changes in the result of a query, as [copies, row] with negative copies for "
        "deleted rows. The first call returns all rows and a cursor; later calls with the cursor "
        "wait for changes and return them with the next cursor.",
        queries.Subscribe,
        queries.subscribe,
    ),
    Tool(
        "explain",
        "Explain a query",
        "Return how a query is computed, where its time is spent, or what delays its rows.",
        queries.Explain,
        queries.explain,
        ("developer",),
    ),
    Tool(
        "show_states",
        "Show states",
        "Return how far views lag behind, the states of dataflows, replicas, sources and sinks, "
        "and the last statements that failed.",
        states.ShowStates,
        states.show_states,
        ("developer",),
    ),
)


def tools_for(audience: Audience) -> Mapping[str, Tool]:
    """Return the tools of an audience by their names."""
    return {each.name: each for each in TOOLS if audience in each.audiences}
