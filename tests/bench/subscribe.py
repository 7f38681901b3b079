"""Many subscriptions to one indexed view: `python -m tests.bench subscribe [CONNECTIONS]`.

One process holds all connections and the one that writes, and looks at sockets only, so that it
costs little itself; it shares the machine with the server. Each change is one UPDATE, of which
every follower hears two rows. Latency is from the answer to the UPDATE to when a follower, or the
last of all followers, has both.
"""

from __future__ import annotations

import os
import selectors
import statistics
import struct
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness import Server, indexed, serving, until
from tests.wire.raw import Raw

SECONDS = 20
RATE = 10  # changes a second
SETUP = (
    "CREATE TABLE hot (k int, v int)",
    "INSERT INTO hot VALUES (1, 0)",
    "CREATE VIEW hot_sums AS SELECT k, sum(v) AS v FROM hot GROUP BY k",
    "CREATE INDEX ON hot_sums (k)",
)
FOLLOW = b"COPY (SUBSCRIBE TO hot_sums WITH (SNAPSHOT = false)) TO STDOUT\0"


@dataclass(slots=True)
class Follower:
    """A connection that follows, and how many rows it has been sent."""

    raw: Raw
    rows: int = 0
    rest: bytes = b""

    def heard(self) -> int:
        """Read what there is; return how many rows there have been by now."""
        data = self.rest + self.raw.socket.recv(1 << 16)
        at = 0
        while at + 5 <= len(data):
            end = at + 1 + struct.unpack_from("!i", data, at + 1)[0]
            if end > len(data):
                break
            self.rows += data[at : at + 1] == b"d"
            at = end
        self.rest = data[at:]
        return self.rows


@dataclass(slots=True)
class Change:
    """When a change was acknowledged, and when followers had it."""

    committed: float
    arrived: list[float] = field(default_factory=list)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Return the memory that a process holds."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def changelogs(server: Server) -> tuple[int, int]:
    """Return how many changelogs and subscriptions there are."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if line.startswith("adapter_"))
    return int(float(found["foreshore_changelogs"])), int(float(found["foreshore_subscriptions"]))


def percentile(values: list[float], share: float) -> float:
    """Return the value below which `share` of all lie."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def play(server: Server, followers: list[Follower]) -> list[Change]:
    """Make changes at the rate, and note when each was where."""
    selector = selectors.DefaultSelector()
    for follower in followers:
        selector.register(follower.raw.socket, selectors.EVENT_READ, follower)
    writer = Raw(server.port)
    selector.register(writer.socket, selectors.EVENT_READ, None)
    changes: list[Change] = []
    early: dict[int, list[float]] = {}
    began = time.monotonic()
    sent, last = 0, SECONDS * RATE
    waiting = False
    while len(changes) < last or len(changes[-1].arrived) < len(followers):
        now = time.monotonic()
        assert now < began + 4 * SECONDS, "followers do not hear of all changes"
        due = began + sent / RATE
        if sent < last and not waiting and now >= due:
            writer.send("Q", b"UPDATE hot SET v = v + 1\0")
            sent, waiting = sent + 1, True
        for key, _ in selector.select(0.001 if sent < last else 0.05):
            if key.data is None:
                writer.until("Z")
                changes.append(Change(time.monotonic(), early.pop(len(changes), [])))
                waiting = False
                continue
            before = key.data.rows // 2
            after = key.data.heard() // 2
            now = time.monotonic()
            for number in range(before, after):
                if number < len(changes):
                    changes[number].arrived.append(now)
                else:
                    early.setdefault(number, []).append(now)
    return changes


def measure(connections: int) -> None:
    """Print the figures for so many connections."""
    with (
        tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder,
        serving(Path(folder) / "data", "--max-connections", str(connections + 10)) as server,
    ):
        with server.connect() as connection:
            for statement in SETUP:
                connection.execute(statement.encode())
            indexed(connection, "hot_sums")
        assert server.process is not None
        pids = [server.process.pid, *server.children()]
        before_mb = resident_mb(pids[0])
        followers = []
        opening = time.monotonic()
        for _ in range(connections):
            raw = Raw(server.port)
            raw.send("Q", FOLLOW)
            raw.until("H")
            followers.append(Follower(raw))
        opened = time.monotonic() - opening
        until(lambda: changelogs(server) == (1, connections), "all share one changelog")
        time.sleep(2)
        before = list(map(cpu_seconds, pids))
        idle = time.monotonic()
        time.sleep(5)
        idled = [
            (now - then) / (time.monotonic() - idle)
            for now, then in zip(map(cpu_seconds, pids), before, strict=True)
        ]
        before = list(map(cpu_seconds, pids))
        started = time.monotonic()
        changes = play(server, followers)
        lasted = time.monotonic() - started
        used = [
            now - then - idle * lasted
            for now, then, idle in zip(map(cpu_seconds, pids), before, idled, strict=True)
        ]
        after_mb = resident_mb(pids[0])
        each = [t - c.committed for c in changes for t in c.arrived]
        last = [max(c.arrived) - c.committed for c in changes]
        environment = 1000 * used[0] / len(changes)
        replicas = 1000 * sum(used[1:]) / len(changes)
        print(
            f"| {connections:,} | {RATE} | {1000 * statistics.median(each):.1f} |"
            f" {1000 * statistics.median(last):.1f} / {1000 * percentile(last, 0.99):.1f} |"
            f" {environment:.1f} + {replicas:.1f} | {before_mb:.0f} -> {after_mb:.0f} |"
            f" {opened:.1f} |",
            flush=True,
        )
        for follower in followers:
            follower.raw.socket.close()


def main(arguments: list[str]) -> None:
    """Measure for one connection and for many, or for as many as are asked for."""
    print(
        "| subscriptions | changes/s | commit to arrival, median (ms) | to the last one, p50 / p99"
        " (ms) | CPU per change, server + replica (ms) | server's memory (MB) | all began within"
        " (s) |\n|---|---|---|---|---|---|---|"
    )
    for connections in [int(each) for each in arguments] or [1, 1000]:
        measure(connections)
