"""Resources: descriptions of tables and views, under addresses such as foreshore:///public/orders."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from foreshore.errors import UndefinedTable
from foreshore.expr.functions.text import quote_ident
from foreshore.server.http.mcp.objects import (
    DescribeObject,
    ListObjects,
    describe_object,
    list_objects,
)
from foreshore.server.http.mcp.work import Work
from foreshore.server.http.messages import as_json

LISTED = 500
_URI = "foreshore:///"
TEMPLATE = {
    "uriTemplate": f"{_URI}{{schema}}/{{name}}",
    "name": "relation",
    "description": "the description of a table or view",
    "mimeType": "application/json",
}
_RELATIONS = ("table", "source", "view", "materialized-view")


async def listed(work: Work, _: None) -> Mapping[str, Any]:
    """Return the resources, at most LISTED."""
    found = await list_objects(work, ListObjects(limit=LISTED))
    return {"resources": [_resource(each) for each in found["objects"] if _is_relation(each)]}


async def read(work: Work, uri: object) -> Mapping[str, Any]:
    """Return the contents of a resource; raises UndefinedTable."""
    found = await describe_object(work, DescribeObject(_name_in(uri)))
    text = as_json(found).decode()
    return {"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}


def _is_relation(found: Mapping[str, Any]) -> bool:
    return found["kind"] in _RELATIONS


def _resource(found: Mapping[str, Any]) -> Mapping[str, Any]:
    path = "/".join(quote(str(found[part]), safe="") for part in ("schema", "name"))
    shown = {
        "uri": _URI + path,
        "name": f"{found['schema']}.{found['name']}",
        "mimeType": "application/json",
    }
    return shown if found["comment"] is None else {**shown, "description": found["comment"]}


def _name_in(uri: object) -> str:
    """Return the name of the relation that a URI stands for; raises UndefinedTable."""
    if isinstance(uri, str) and uri.startswith(_URI):
        parts = uri.removeprefix(_URI).split("/")
        if len(parts) == 2:
            return ".".join(quote_ident(unquote(part)) for part in parts)
    raise UndefinedTable(f"resource not found: {str(uri)[:200]}")
