"""The description of the interface for programs, as OpenAPI 3.1, at /api/openapi.json."""

from importlib.metadata import version
from typing import Any

import msgspec

from foreshore.server.http.columnar import ENCODERS
from foreshore.server.http.requests import SqlRequest

_ERROR = {
    "type": "object",
    "required": ["message", "code"],
    "properties": {
        "message": {"type": "string"},
        "code": {"type": "string", "description": "PostgreSQL's SQLSTATE"},
        "detail": {"type": "string"},
        "hint": {"type": "string"},
        "position": {"type": "integer", "description": "in characters of the text, from 1"},
    },
}
_COLUMN = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "type_oid": {"type": "integer"},
        "type_len": {"type": "integer"},
        "type_mod": {"type": "integer"},
    },
}
_BYTES = {"type": "string", "contentMediaType": "application/octet-stream"}
_RESULT = {
    "type": "object",
    "description": "Of a statement: its rows and their tag, or only a tag (ok), or an error.",
    "properties": {
        "tag": {"type": "string"},
        "ok": {"type": "string"},
        "rows": {"type": "array", "items": {"type": "array", "items": {}}},
        "desc": {
            "type": "object",
            "properties": {
                "columns": {"type": "array", "items": {"$ref": "#/components/schemas/Column"}}
            },
        },
        "error": {"$ref": "#/components/schemas/Error"},
        "notices": {"type": "array", "items": {"$ref": "#/components/schemas/Error"}},
    },
}


def document() -> dict[str, Any]:
    """Return the document; its schemas of requests are those by which requests are decoded."""
    (request,), requests = msgspec.json.schema_components(
        [SqlRequest], ref_template="#/components/schemas/{name}"
    )
    results = _object(results={"type": "array", "items": {"$ref": "#/components/schemas/Result"}})
    error = _answer("application/json", _object(error={"$ref": "#/components/schemas/Error"}))
    refused = {status: error for status in ("400", "401", "403", "413", "415", "503")}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Foreshore", "version": version("foreshore")},
        "security": [{}, {"basic": []}, {"bearer": []}],
        "paths": {
            "/api/sql": {
                "post": {
                    "summary": "Run statements and return their results",
                    "parameters": [_parameter("options", "session variables, a JSON object")],
                    "requestBody": {
                        "required": True,
                        "content": {"application/json": {"schema": request}},
                    },
                    "responses": {
                        "200": {
                            "description": "the answer, or one result in another format",
                            "content": {
                                "application/json": {"schema": results},
                                **{kind: {"schema": _BYTES} for kind in ENCODERS},
                            },
                        },
                        **refused,
                    },
                }
            },
            "/api/subscribe": {
                "get": {
                    "summary": "Follow a query as server-sent events",
                    "parameters": [
                        _parameter("query", "a query", required=True),
                        _parameter("params", "values of its parameters, a JSON array"),
                        _parameter("options", "session variables, a JSON object"),
                        _parameter("after", "the id of the last event of progress"),
                        _parameter("Last-Event-ID", "the same", place="header"),
                    ],
                    "responses": {
                        "200": _answer("text/event-stream", {"type": "string"}),
                        **refused,
                    },
                }
            },
        },
        "components": {
            "securitySchemes": {
                each: {"type": "http", "scheme": each} for each in ("basic", "bearer")
            },
            "schemas": {**requests, "Result": _RESULT, "Column": _COLUMN, "Error": _ERROR},
        },
    }


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _answer(kind: str, schema: Any) -> dict[str, Any]:
    return {"description": "the answer", "content": {kind: {"schema": schema}}}


def _parameter(
    name: str, description: str, *, place: str = "query", required: bool = False
) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": required,
        "description": description,
        "schema": {"type": "string"},
    }
