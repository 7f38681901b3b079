"""Spans of statements, commits and dataflows, as a collector gets them by OTLP."""

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest

from foreshore import tracing
from foreshore.server.traces import open_traces
from tests.harness import Server, until

pytestmark = pytest.mark.full  # starts servers

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class Collector:
    """Keeps the spans that it is sent."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        self.spans: list[Any] = []
        self.services: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                import gzip

                data = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    data = gzip.decompress(data)
                assert self.path == "/v1/traces"
                for part in ExportTraceServiceRequest.FromString(data).resource_spans:
                    for each in part.resource.attributes:
                        if each.key == "service.name":
                            collector.services.add(each.value.string_value)
                    collector.spans += [s for scope in part.scope_spans for s in scope.spans]
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def named(self, name: str) -> list[Any]:
        """Return the spans of a name."""
        return [each for each in self.spans if each.name == name]

    def statement(self, text: str) -> Any:
        """Return the only span of a statement's text."""
        (found,) = (each for each in self.spans if attributes(each).get("db.query.text") == text)
        return found

    def below(self, span: Any) -> dict[str, Any]:
        """Return the spans within another one, by name; each lies within it."""
        found = {each.name: each for each in self.spans if each.parent_span_id == span.span_id}
        for each in found.values():
            assert each.trace_id == span.trace_id
            assert span.start_time_unix_nano <= each.start_time_unix_nano
            assert each.end_time_unix_nano <= span.end_time_unix_nano
        return found


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_statements_have_spans_with_their_phases(tmp_path: Path, collector: Collector) -> None:
    given = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    server = Server(tmp_path / "data", environment=given).start()
    commented = f"SELECT count(*) FROM t /*action='list',traceparent='{PARENT}'*/"
    try:
        with psycopg.connect(server.url, autocommit=True) as session:
            session.execute("CREATE TABLE t (k int)")
            session.execute("CREATE MATERIALIZED VIEW v AS SELECT sum(k) FROM t")
            session.execute("INSERT INTO t SELECT generate_series(1, 10)")
            session.execute(commented)
            session.execute("SELECT k FROM t WHERE k = %s", (3,))
            with pytest.raises(psycopg.errors.DivisionByZero):
                session.execute("SELECT 1 / (k - 1) FROM t")
            session.execute("CREATE SECRET s AS 'very secret'")
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
        body = json.dumps({"query": "SELECT 42"})
        headers = {"Content-Type": "application/json", "traceparent": PARENT}
        connection.request("POST", "/api/sql", body, headers)
        assert connection.getresponse().status == 200
        until(lambda: bool(collector.named("dataflow steps")), "steps have a span", 60)
    finally:
        server.stop()
    insert = collector.statement("INSERT INTO t SELECT generate_series(1, 10)")
    assert insert.name == "INSERT"
    assert attributes(insert)["foreshore.tag"] == "INSERT 0 10"
    phases = collector.below(insert)
    assert phases.keys() >= {"execute"}
    assert "commit" in collector.below(phases["execute"]) | phases
    read = collector.statement(commented)
    assert (read.trace_id.hex(), read.parent_span_id.hex()) == (TRACE, PARENT.split("-")[2])
    assert attributes(read)["db.response.returned_rows"] == 1
    assert "wait for inputs" in collector.below(collector.below(read)["execute"])
    assert collector.statement("SELECT 42").trace_id.hex() == TRACE
    failed = collector.statement("SELECT 1 / (k - 1) FROM t")
    assert (failed.status.code, attributes(failed)["db.response.status_code"]) == (2, "22012")
    names = {each.name for each in collector.spans}
    assert names >= {"parse", "plan", "execute", "commit", "group commit", "dataflow steps"}
    assert collector.services == {"foreshore"}
    assert "very secret" not in str(collector.spans)
    groups = collector.named("group commit")
    assert any(attributes(each)["foreshore.writes"] == 1 for each in groups)


def test_nothing_is_recorded_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", raising=False)
    assert open_traces(None) is None
    assert not tracing.is_on
    assert tracing.begin("SELECT 1") is None
    assert tracing.phase("plan") is tracing.phase("parse")


def test_server_goes_on_without_a_collector(tmp_path: Path) -> None:
    args = ("--trace-endpoint", "http://127.0.0.1:9")
    server = Server(tmp_path / "data", args=args).start()
    try:
        with psycopg.connect(server.url, autocommit=True) as session:
            assert session.execute("SELECT 1").fetchall() == [(1,)]
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"SELECT 1 /*traceparent='{PARENT}'*/", PARENT),
        (f"/*a='b',traceparent='{PARENT}',z='y'*/ SELECT 1", PARENT),
        ("SELECT 1 /*traceparent='00-zz'*/", None),
        (" " * 5000 + f"SELECT 1 /*traceparent='{PARENT}'*/" + " " * 5000, None),
    ],
)
def test_traceparent_is_found_in_comments(text: str, found: str | None) -> None:
    assert tracing.traceparent_of(text) == found
