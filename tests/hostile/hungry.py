"""Hungry kinds: what a role that may only log in asks for to take the memory of a server.

    KINDS["unread: a long value"](server)   opens sessions, each of which does so, and returns them

The sessions stay open, and do not read more than the kind says, until they are closed.
"""

import json
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness import Server

READY = b"Z\0\0\0\5"
LIMIT = 256 << 20  # bytes of --query-memory by default
MIB = 1 << 20


def framed(code: str, body: bytes = b"") -> bytes:
    """Return a message of the protocol."""
    return code.encode() + struct.pack("!i", len(body) + 4) + body


def query(sql: str) -> bytes:
    """Return a Query message."""
    return framed("Q", sql.encode() + b"\0")


def portal(name: str, sql: str, rows: int = 1) -> bytes:
    """Return the messages that fetch the first rows by a portal of this name."""
    end = name.encode() + b"\0"
    return (
        framed("P", b"\0" + sql.encode() + b"\0\0\0")
        + framed("B", end + b"\0" + b"\0\0" * 3)
        + framed("E", end + struct.pack("!i", rows))
    )


class Session:
    """A session of the hostile role, whose client reads only what it is told to."""

    def __init__(self, server: Server, user: str = "hostile") -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.socket.settimeout(60)
        parameters = f"user\0{user}\0database\0foreshore\0\0".encode()
        self.socket.sendall(struct.pack("!ii", len(parameters) + 8, 196608) + parameters)
        self.read_until(READY)

    def send(self, *messages: bytes) -> "Session":
        """Send messages; what the server does not take in a second stays unsent."""
        data = memoryview(b"".join(messages))
        self.socket.settimeout(1)
        try:
            while data:
                data = data[self.socket.send(data) :]
        except OSError:
            pass  # it does not read, or has ended the session
        finally:
            self.socket.settimeout(60)
        return self

    def read_until(self, end: bytes) -> bytes:
        """Read until this has come; return the last of it."""
        received = b""
        while end not in received:
            more = self.socket.recv(1 << 16)
            if not more:
                break
            received = received[-65536:] + more
        return received

    def close(self) -> None:
        """Close it at once."""
        self.socket.close()


class HttpSession:
    """A request over HTTP whose answer is not read."""

    def __init__(self, server: Server, head: str, body: object = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.http_port))
        text = b"" if body is None else json.dumps(body).encode()
        lines = [head, "Host: localhost", "Authorization: Basic aG9zdGlsZTo="]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(text)}"]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode() + text)

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def close(self) -> None:
        """Close it at once."""
        self.socket.close()


Opened = Sequence[Session | HttpSession]
Kind = Callable[[Server], Opened]
KINDS: dict[str, Kind] = {}


def _sessions(count: int, *sent: bytes) -> Kind:
    def opened(server: Server) -> Opened:
        return [Session(server).send(*sent) for _ in range(count)]

    return opened


def _unread(name: str, count: int, sql: str) -> None:
    KINDS[f"unread: {name}"] = _sessions(count, query(sql))


def _copied(name: str, count: int, sql: str) -> None:
    KINDS[f"COPY TO: {name}"] = _sessions(count, query(f"COPY ({sql}) TO STDOUT"))


def _suspended(name: str, count: int, sql: str) -> None:
    begin = framed("P", b"\0BEGIN\0\0\0") + framed("B", b"\0\0" + b"\0\0" * 3)
    begin += framed("E", b"\0\0\0\0\0")
    sent = begin + b"".join(portal(f"p{i}", sql) for i in range(count)) + framed("H")
    KINDS[f"portals: {name}"] = _sessions(1, sent)


def _cursors(name: str, count: int, sql: str) -> None:
    text = "".join(f"DECLARE c{i} CURSOR FOR {sql}; FETCH 1 FROM c{i};" for i in range(count))
    KINDS[f"cursors: {name}"] = _sessions(1, query(f"BEGIN; {text}"))


def _http(name: str, count: int, sql: str) -> None:
    def opened(server: Server) -> Opened:
        head = "POST /api/sql HTTP/1.1"
        return [HttpSession(server, head, {"query": sql}) for _ in range(count)]

    KINDS[f"HTTP: {name}"] = opened


def _mcp(name: str, count: int, sql: str) -> None:
    call = {"name": "query", "arguments": {"sql_query": sql, "cluster": "quickstart"}}

    def opened(server: Server) -> Opened:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        return [HttpSession(server, "POST /api/mcp/developer HTTP/1.1", body) for _ in range(count)]

    KINDS[f"MCP: {name}"] = opened


def _events(name: str, count: int, sql: str) -> None:
    from urllib.parse import quote

    def opened(server: Server) -> Opened:
        head = f"GET /api/subscribe?query={quote(sql)} HTTP/1.1"
        return [HttpSession(server, head) for _ in range(count)]

    KINDS[f"events: {name}"] = opened


def _web_sockets(name: str, count: int, sql: str) -> None:
    upgrade = "GET /api/sql/ws HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    upgrade += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="

    def text(value: object) -> bytes:
        data = json.dumps(value).encode()
        return b"\x81" + bytes([128 | 126]) + struct.pack("!H", len(data)) + b"\0\0\0\0" + data

    def opened(server: Server) -> Opened:
        found = []
        for _ in range(count):
            session = HttpSession(server, upgrade)
            session.socket.recv(4096)
            session.send(text({"user": "hostile", "password": "".ljust(100)}))
            session.send(text({"query": sql.ljust(130)}))
            found.append(session)
        return found

    KINDS[f"WebSocket: {name}"] = opened


def _endless(name: str, count: int, sql: str, data: bytes, times: int) -> None:
    """COPY ... FROM STDIN, of messages that go on."""

    def opened(server: Server) -> Opened:
        found = []
        for _ in range(count):
            session = Session(server)
            session.send(query("CREATE TEMP TABLE mine (a text, b int)"))
            session.read_until(READY)
            session.send(query(sql))
            session.read_until(b"G\0\0\0")
            found.append(session)
        for _ in range(times):
            for session in found:
                session.send(data)
        return found

    KINDS[f"COPY FROM: {name}"] = opened


SERIES = "generate_series(1, 400000) g"
LONG_VALUE = "SELECT repeat('x', 100000000)"
LONG_SERIES = f"SELECT g, repeat('x', 1000) FROM {SERIES}"
SORTED = f"SELECT g, repeat('x', 1000) FROM {SERIES} ORDER BY 2, 1 DESC"
WIDE = ", ".join(f"g + {i} AS c{i}" for i in range(1600))
WIDE_ROWS = f"SELECT {WIDE} FROM generate_series(1, 30000) g"
ARRAYS = "SELECT array_agg(g) FROM generate_series(1, 3000000) g"
DOCUMENTS = "SELECT jsonb_agg(g) FROM generate_series(1, 2000000) g"

for _name, _count, _sql in (
    ("a long value", 20, LONG_VALUE),
    ("a series", 4, LONG_SERIES),
    ("sorted rows", 4, SORTED),
    ("wide rows", 4, WIDE_ROWS),
    ("arrays", 4, ARRAYS),
    ("documents", 4, DOCUMENTS),
    ("stored rows", 4, "SELECT * FROM stored"),
):
    _unread(_name, _count, _sql)
    _copied(_name, _count, _sql)
    _cursors(_name, _count, _sql)
    _suspended(_name, _count, _sql)
    _http(_name, _count, _sql)
    _web_sockets(_name, _count, _sql)
    _mcp(_name, _count, _sql)
    _unread(f"SUBSCRIBE: {_name}", _count, f"SUBSCRIBE ({_sql})")
    _events(_name, _count, f"SUBSCRIBE ({_sql})")

_suspended("a thousand long values", 1000, "SELECT repeat('x', 5000000) FROM generate_series(1, 5)")
_suspended(
    "a thousand sorts",
    999,
    "SELECT g, repeat('x', 100) FROM generate_series(1, 30000) g ORDER BY 2",
)

ROW = "x" * 1000 + "\t7\n"
_endless("one row without end", 4, "COPY mine FROM STDIN", framed("d", b"y" * MIB), 250)
_endless("rows without end", 2, "COPY mine FROM STDIN", framed("d", ROW.encode() * 1000), 500)
_endless("huge rows", 2, "COPY mine FROM STDIN", framed("d", b"y" * (50 * MIB) + b"\t7\n"), 10)

_FILL = "INSERT INTO mine SELECT repeat('x', 1000) || g, g FROM generate_series(1, 50000) g;"
KINDS["writes: one transaction"] = _sessions(
    2, query("BEGIN; CREATE TEMP TABLE mine (a text, b int)"), query(_FILL) * 20
)
KINDS["writes: each its transaction"] = _sessions(
    2, query("CREATE TEMP TABLE mine (a text, b int)"), query(_FILL) * 20
)
KINDS["writes: savepoints"] = _sessions(
    2,
    query("BEGIN; CREATE TEMP TABLE mine (a text, b int)"),
    b"".join(
        query(f"SAVEPOINT s{i}; INSERT INTO mine VALUES ('{'x' * 100000}', {i})")
        for i in range(5000)
    ),
)
KINDS["writes: updates of one row"] = _sessions(
    2,
    query("BEGIN; CREATE TEMP TABLE mine (a text, b int PRIMARY KEY)"),
    query("INSERT INTO mine VALUES ('', 1)"),
    query("UPDATE mine SET a = repeat('x', 10000000) WHERE b = 1") * 100,
)
KINDS["writes: long values"] = _sessions(
    2,
    query("BEGIN; CREATE TEMP TABLE mine (a text, b int)"),
    query("INSERT INTO mine SELECT repeat('x', 50000000), 1") * 20,
)

TEN_MILLION = "generate_series(1, 10000000) g"
COMPUTED = {
    "string_agg": f"SELECT length(string_agg(repeat('x', 100), ',')) FROM {TEN_MILLION}",
    "array_agg": f"SELECT cardinality(array_agg(g)) FROM {TEN_MILLION}",
    "array_agg of texts": f"SELECT cardinality(array_agg(g || repeat('x', 90))) FROM {TEN_MILLION}",
    "jsonb_agg": f"SELECT length(jsonb_agg(g)::text) FROM {TEN_MILLION}",
    "jsonb_object_agg": f"SELECT length(jsonb_object_agg(g, g)::text) FROM {TEN_MILLION}",
    "count(distinct)": f"SELECT count(DISTINCT g || 'xxxxxxxxxxxxxxxxxxxxxxxxx') FROM {TEN_MILLION}",
    "DISTINCT": f"SELECT DISTINCT g || 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' FROM {TEN_MILLION}",
    "GROUP BY": f"SELECT g || 'xxxxxxxxxx', count(*) FROM {TEN_MILLION} GROUP BY 1",
    "window": f"SELECT g, sum(g) OVER (ORDER BY g DESC), lag(g) OVER () FROM {TEN_MILLION}",
    "sort": f"SELECT g, md5(g::text) FROM {TEN_MILLION} ORDER BY 2",
    "hash join": f"SELECT count(*) FROM {TEN_MILLION} JOIN generate_series(1, 10000000) h"
    " ON g = h AND md5(g::text) = md5(h::text)",
    "cross join": "SELECT count(*) FROM generate_series(1, 100000) g, generate_series(1, 100000) h"
    " WHERE g * h % 7 = 1",
    "recursion": "WITH RECURSIVE r(n, t) AS (SELECT 1, 'x' UNION ALL SELECT n + 1, t || t FROM r"
    " WHERE n < 40) SELECT max(n) FROM r",
    "recursion of rows": "WITH RECURSIVE r(n) AS (SELECT 1::numeric UNION ALL SELECT n * 2 + k FROM r,"
    " generate_series(0, 1) k) SELECT count(*) FROM r",
    "unnest": "SELECT count(u) FROM unnest(array_fill(7, ARRAY[30000000])) u",
    "array_fill": "SELECT array_fill('xxxxxxxxxxxxxxxx'::text, ARRAY[10000000])",
    "array of series": "SELECT cardinality(ARRAY(SELECT g FROM generate_series(1, 10000000) g))",
    "regexp_replace": "SELECT length(regexp_replace(repeat('a', 20000000), 'a', 'bbbbbbbbbb', 'g'))",
    "regexp_split": "SELECT cardinality(regexp_split_to_array(repeat('a,', 5000000), ','))",
    "string_to_table": "SELECT count(*) FROM string_to_table(repeat('a,', 20000000), ',')",
    "replace": "SELECT length(replace(repeat('a', 20000000), 'a', repeat('b', 1000)))",
    "jsonpath": "SELECT count(*) FROM jsonb_path_query((SELECT jsonb_agg(g) FROM"
    " generate_series(1, 1000000) g), '$[*]')",
    "decode": "SELECT length(decode(repeat('ab', 50000000), 'hex'))",
    "encode": "SELECT length(encode(convert_to(repeat('ab', 50000000), 'UTF8'), 'base64'))",
    "casts": "SELECT length(repeat('1,', 10000000)::bytea::text)",
    "text of arrays": "SELECT length(array_fill('a b'::text, ARRAY[10000000])::text)",
    "arrays of text": "SELECT cardinality(('{' || repeat('1,', 10000000) || '1}')::int[])",
    "json of text": "SELECT jsonb_array_length(('[' || repeat('1,', 5000000) || '1]')::jsonb)",
    "translate": "SELECT length(upper(translate(repeat('a', 100000000), 'a', 'b')))",
    "concatenations": "SELECT length(" + " || ".join(["repeat('x', 50000000)"] * 20) + ")",
    "many long values": "SELECT " + ", ".join(["repeat('x', 20000000)"] * 40),
    "VALUES": "VALUES " + ", ".join(["(repeat('x', 20000000))"] * 40),
    "UNION": f"SELECT repeat('x', 500) || g FROM {SERIES} UNION SELECT repeat('y', 500) || g"
    f" FROM {SERIES}",
    "lateral": "SELECT count(s) FROM generate_series(1, 10000) g, LATERAL (SELECT repeat('x', g) s"
    " FROM generate_series(1, 1000)) l",
    "CREATE TEMP TABLE AS": f"CREATE TEMP TABLE t AS SELECT g, repeat('x', 1000) FROM {SERIES}",
    "aggregates of stored rows": "SELECT length(string_agg(v, ',')), count(DISTINCT v) FROM stored",
    "sort of stored rows": "SELECT v || 'x' FROM stored ORDER BY 1",
    "join of stored rows": "SELECT a.v, b.v FROM stored a JOIN stored b ON a.v <> b.v ORDER BY 1",
    "look-ups": "".join(f"SELECT v FROM stored WHERE k = {k};" for k in range(1, 100)),
    "look-ups at once": "SELECT v FROM stored WHERE k IN ("
    + ",".join(map(str, range(1, 100)))
    + ")",
    "look-up that grows": "SELECT repeat(v, 100) FROM stored WHERE k = 7",
    "look-ups in an index": "SELECT v FROM stored_view WHERE k IN ("
    + ",".join(map(str, range(1, 100)))
    + ")",
    "whole index": "SELECT * FROM stored_view",
}
# Long values in many rows, each of which a function gets.
_ARRAY = "SELECT array_agg(n) AS a FROM generate_series(1, 100000) n"
_TEXT = "SELECT string_agg(n::text, ',') AS a FROM generate_series(1, 200000) n"
_DOCUMENT = "SELECT jsonb_agg(n) AS a FROM generate_series(1, 100000) n"
for _name, _value, _call in (
    ("array_cat", _ARRAY, "a || g"),
    ("array_cat, its answers gathered", _ARRAY, "array_agg(a || g)"),
    ("array_remove", _ARRAY, "array_remove(a, g)"),
    ("array to text", _ARRAY, "(a || g)::text"),
    ("array_position", _ARRAY, "array_position(a, -g)"),
    ("records", _ARRAY, "row(a, g)"),
    ("md5", _TEXT, "md5(a || g)"),
    ("text to array", _TEXT, "string_to_array(a, ',')"),
    ("bytea", _TEXT, "convert_to(a, 'UTF8') || 'x'"),
    ("jsonb", _DOCUMENT, "a - g"),
    ("jsonpath", _DOCUMENT, "jsonb_path_query_first(a, '$[last]')"),
):
    COMPUTED[f"calls: {_name}"] = (
        f"SELECT {_call if 'agg(' in _call else f'count({_call})'}"
        f" FROM ({_value}) x, generate_series(1, 1000) g"
    )

for _name, _sql in COMPUTED.items():
    KINDS[f"computed: {_name}"] = _sessions(4, query(_sql))


def _parameters(server: Server) -> Opened:
    value = struct.pack("!i", 100 * MIB) + b"z" * (100 * MIB)
    parse = framed("P", b"\0SELECT length($1), $1\0" + struct.pack("!hi", 1, 17))
    bind = framed("B", b"\0\0" + struct.pack("!hhh", 1, 1, 1) + value + b"\0\0")
    execute = framed("E", b"\0\0\0\0\0") + framed("S")
    found = [Session(server) for _ in range(3)]
    for each in found:
        each.socket.sendall(parse)
        each.socket.sendall(bind + execute)
    return found


KINDS["parameters: 100 MB"] = _parameters


def prepare(server: Server) -> None:
    """Create what the kinds read: 100 rows of 500 kB, and an index that has them."""
    with server.connect() as connection:
        connection.execute("CREATE ROLE hostile LOGIN")
        connection.execute("CREATE TABLE stored (k int PRIMARY KEY, v text)")
        for k in range(0, 100, 20):
            connection.execute(
                "INSERT INTO stored SELECT g, repeat(md5(g::text), 16000)"
                f" FROM generate_series({k + 1}, {k + 20}) g".encode()
            )
        connection.execute("CREATE VIEW stored_view AS SELECT k, v FROM stored")
        connection.execute("CREATE INDEX ON stored_view (k)")
        connection.execute("GRANT SELECT ON stored, stored_view TO PUBLIC")


@dataclass
class Sizes:
    """The bytes of memory of a server's processes: now, or at their peaks since `reset`."""

    server: int = 0
    others: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Of all of them."""
        return self.server + sum(self.others.values())


def sizes(server: Server, what: str) -> Sizes:
    """Return sizes of the server and its processes: `VmRSS`, or `RssAnon` without files."""
    found = Sizes()
    assert server.process is not None
    for pid in server.processes():
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
        except OSError:
            continue
        size = sum(int(each.split()[1]) << 10 for each in lines if each.startswith(f"{what}:"))
        if pid == server.process.pid:
            found.server = size
        else:
            name = next(
                (n for n in ("isolated", "replica", "ingest", "export", "workers") if n in command),
                "other",
            )
            found.others[f"{name} {pid}"] = size
    return found
