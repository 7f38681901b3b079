"""A catalog of Iceberg tables by the REST protocol, in a thread of this process.

It is pyiceberg's SqlCatalog, with SQLite, behind HTTP. A test may take it away, and let answers to
commits get lost.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

CLIENT, SECRET, TOKEN = "me", "secret", "a token"


class IcebergCatalog:
    """The catalog, and what is wrong with it."""

    def __init__(self, place: Path, warehouse: str | None = None) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        self.url = ""
        self.config: dict[str, str] = {}  # that it gives out with each table
        self.overrides: dict[str, str] = {}  # that it gives to clients at the beginning
        self.away = False
        self.lost = 0  # answers to commits that get lost, after the commit
        self.refused = 0  # commits that fail without one
        self.repeated = 0  # commits that are asked for again, as a client does without an answer
        self.answers_lost = 0  # so far
        self.commits = 0  # that were asked for
        self._lock = threading.Lock()
        self.tables: Any = SqlCatalog(
            "c",
            uri=f"sqlite:///{place}/catalog.db?check_same_thread=False",
            warehouse=warehouse or f"file://{place}",
        )

    def rows(self, name: str) -> list[Any]:
        """Return the rows of a table, sorted."""
        found = self.tables.load_table(name).scan().to_arrow().to_pylist()
        return sorted((tuple(each.values()) for each in found), key=repr)

    def answer(self, method: str, path: str, body: bytes, token: str) -> tuple[int, Any]:
        """Return the status and the document for a request."""
        parts = [unquote(each) for each in path.strip("/").split("/")][1:]
        if method == "POST" and parts == ["oauth", "tokens"]:
            given = parse_qs(body.decode())
            if given.get("client_secret") != [SECRET] or given.get("client_id") != [CLIENT]:
                return 401, _error("invalid_client", 401)
            return 200, {"access_token": TOKEN, "token_type": "bearer"}
        if token != f"Bearer {TOKEN}":
            return 401, _error("NotAuthorizedException", 401)
        if parts == ["config"]:
            return 200, {"defaults": {}, "overrides": self.overrides}
        with self._lock:
            return self._answer(method, parts[1:], body)

    def _answer(self, method: str, parts: list[str], body: bytes) -> tuple[int, Any]:
        from pyiceberg import exceptions as of

        try:
            match method, parts:
                case "GET", []:
                    return 200, {"namespaces": [list(n) for n in self.tables.list_namespaces()]}
                case "POST", [namespace, "tables"]:
                    return 200, self._created(namespace, json.loads(body))
                case "HEAD", [namespace, "tables", name]:
                    return (204 if self.tables.table_exists((namespace, name)) else 404), None
                case "GET", [namespace, "tables", name]:
                    return 200, self._described(self.tables.load_table((namespace, name)))
                case "POST", [namespace, "tables", name]:
                    return self._committed((namespace, name), body)
        except of.NoSuchNamespaceError as error:
            return 404, _error("NoSuchNamespaceException", 404, str(error))
        except of.NoSuchTableError as error:
            return 404, _error("NoSuchTableException", 404, str(error))
        except of.TableAlreadyExistsError as error:
            return 409, _error("AlreadyExistsException", 409, str(error))
        except of.CommitFailedException as error:
            return 409, _error("CommitFailedException", 409, str(error))
        return 404, _error("NotFound", 404)

    def _created(self, namespace: str, request: dict[str, Any]) -> Any:
        from pyiceberg.partitioning import PartitionSpec
        from pyiceberg.schema import Schema

        made = self.tables.create_table(
            (namespace, request["name"]),
            Schema.model_validate(request["schema"]),
            location=request.get("location"),
            partition_spec=PartitionSpec.model_validate(request.get("partition-spec") or {}),
            properties=request.get("properties") or {},
        )
        return self._described(made)

    def _described(self, table: Any) -> Any:
        return {
            "metadata-location": table.metadata_location,
            "metadata": json.loads(table.metadata.model_dump_json()),
            "config": self.config,
        }

    def _committed(self, name: tuple[str, str], body: bytes) -> tuple[int, Any]:
        from pyiceberg.table import CommitTableRequest

        self.commits += 1
        if self.refused:
            self.refused -= 1
            return 500, _error("ServerError", 500, "no commit was made")
        document = json.loads(body)
        document.setdefault("identifier", {"namespace": [name[0]], "name": name[1]})
        request = CommitTableRequest.model_validate(document)
        table = self.tables.load_table(name)
        self.tables.commit_table(table, request.requirements, request.updates)
        if self.repeated:
            self.repeated -= 1
            return self._committed(name, body)
        if self.lost:
            self.lost -= 1
            self.answers_lost += 1
            return 500, _error("ServerError", 500, "the commit was made")
        return 200, self._described(self.tables.load_table(name))


def _error(type: str, code: int, message: str = "") -> Any:
    return {"error": {"message": message or type, "type": type, "code": code}}


@contextmanager
def serving(place: Path, warehouse: str | None = None) -> Iterator[IcebergCatalog]:
    """Serve an empty catalog with the namespace `n`, to who has the credential."""
    catalog = IcebergCatalog(place, warehouse)
    catalog.tables.create_namespace("n")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            if catalog.away:
                self.close_connection = True
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            token = self.headers.get("Authorization", "")
            path = urlsplit(self.path).path
            status, document = catalog.answer(self.command, path, body, token)
            sent = b"" if document is None else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_HEAD = do_DELETE = _any

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    catalog.url = f"http://127.0.0.1:{server.server_port}"
    yield catalog
    server.shutdown()
    thread.join()
    server.server_close()
