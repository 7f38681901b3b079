"""A schema registry over HTTP, in a thread of this process."""

import json
import ssl
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

USER, PASSWORD = "me", "secret"


@dataclass
class FakeRegistry:
    """Schemas by their ids, and the ids of subjects, the newest last."""

    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)  # of compatibility, by subjects
    refused: set[str] = field(default_factory=set)  # subjects that take no new schema

    def register(
        self,
        subject: str,
        schema: str,
        type: str = "AVRO",
        *,
        refers_to: dict[str, str] | None = None,
    ) -> int:
        """Return the id of a new version of a subject's schema.

        `refers_to` has the subjects of other schemas, by the names that this one has for them.
        """
        id = len(self.schemas) + 1
        self.schemas[id] = {"schema": schema, "schemaType": type}
        if refers_to:
            self.schemas[id]["references"] = [
                {"name": name, "subject": other, "version": len(self.subjects[other])}
                for name, other in refers_to.items()
            ]
        self.subjects.setdefault(subject, []).append(id)
        return id

    def given(self, subject: str, schema: str) -> int | None:
        """Return the id of a schema that is registered, or anew; None if it is refused."""
        if subject in self.refused:
            return None
        for id in self.subjects.get(subject, ()):
            if self.schemas[id]["schema"] == schema:
                return id
        return self.register(subject, schema)

    def answer(self, path: str) -> Any:
        """Return what is at a path; None if nothing is."""
        match [unquote(each) for each in path.strip("/").split("/")]:
            case ["subjects"]:
                return list(self.subjects)
            case ["subjects", subject, "versions", _] if subject in self.subjects:
                id = self.subjects[subject][-1]
                return {"subject": subject, "id": id, **self.schemas[id]}
            case ["config", subject] if subject in self.levels:
                return {"compatibilityLevel": self.levels[subject]}
            case ["schemas", "ids", id] if int(id) in self.schemas:
                return self.schemas[int(id)]
        return None


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    """Serve an empty registry, to who gives the password; over TLS with a context."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = b64decode(self.headers.get("Authorization", "Basic ")[6:]).decode()
            found = registry.answer(self.path)
            status = 401 if given != f"{USER}:{PASSWORD}" else 404 if found is None else 200
            self._send(status, found if status == 200 else {"error_code": status})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            _, subject, _ = self.path.strip("/").split("/")
            id = registry.given(unquote(subject), body["schema"])
            refused = {"error_code": 409, "message": "the schema is incompatible"}
            self._send(*((409, refused) if id is None else (200, {"id": id})))

        def do_PUT(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            registry.levels[unquote(self.path.removeprefix("/config/"))] = body["compatibility"]
            self._send(200, body)

        def _send(self, status: int, document: object) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    registry.url = f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_port}"
    yield registry
    server.shutdown()
    thread.join()
    server.server_close()
