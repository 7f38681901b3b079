"""Checks of the ports, and of the server behind them if one has the data."""

import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

from foreshore.server.doctor.finding import Finding, fail, ok, warn

SECONDS = 3.0
SCARCE = 0.2  # of the log that a replication slot may retain
MOST_BYTES = 1 << 20
MOST_METRICS = 64 << 20
MOST_NAMES = 5  # of views that fail
_ERRORS = re.compile(r"foreshore_view_errors\{(.*)\} 1(?:\.0)?")
_LETTERS = re.compile(r"foreshore_source_dead_letters\{(.*)\} (\S+)")
_FAILING = re.compile(r'foreshore_views\{state="failing"\} (\d+)')
_SLOT = re.compile(r"foreshore_source_slot_(safe|retained)_bytes\{(.*)\} (\S+)")
_STATE = re.compile(r"foreshore_(source|sink)_state\{(.*)\} 1(?:\.0)?")


@dataclass(frozen=True, slots=True)
class _Failure:
    """A metric that tells by its `value` that what its `label` names fails."""

    name: str
    metric: str
    value: int
    label: str
    message: str  # with a place for how many
    advice: str


_DOWN = (
    _Failure(
        "upkeep of views",
        "foreshore_view_failed",
        1,
        "view",
        "{} not kept up to date",
        "SELECT * FROM mz_internal.mz_dataflow_statuses has the error, such as a memory limit.",
    ),
    _Failure(
        "replicas",
        "foreshore_replica_up",
        0,
        "replica",
        "{} away",
        "SELECT * FROM mz_internal.mz_cluster_replica_status_history has the reason.",
    ),
    _Failure(
        "metrics of views",
        "foreshore_metric_up",
        0,
        "metric",
        "{} not shown at /metrics",
        "SELECT * FROM mz_internal.mz_metric_statuses has the error.",
    ),
)


def port(option: str, address: tuple[str, int], *, is_served: bool) -> Iterator[Finding]:
    """Look whether a port is free for a server, or taken by the one that has the data."""
    host, number = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    name = f"port {number}"
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, number))
        except OSError as error:
            if is_served:
                yield ok(name, f"in use, and a server has the data ({option})")
            else:
                advice = f"End what uses it, or choose another one by {option}."
                yield fail(name, f"cannot be used: {error.strerror}", advice)
            return
    if is_served and number:
        advice = f"Name the address of the running server by {option}."
        yield warn(name, "free, though a server has the data", advice)
    else:
        yield ok(name, "free")


def server(address: tuple[str, int]) -> Iterator[Finding]:
    """Ask a running server how it does."""
    alive = _get(address, "/livez")
    if alive is None:
        advice = "Name its --http-listen; if it hangs, look at its log."
        yield fail("server", "does not answer HTTP", advice)
        return
    ready = _get(address, "/readyz?hydrated=1")
    match ready:
        case (200, _):
            yield ok("server", "accepts SQL, and all views are hydrated")
        case (_, {"status": "hydrating", "count": count, "views": views}):
            text = f"{count} views are not hydrated yet: {', '.join(map(str, views[:3]))}"
            advice = "Wait, or see mz_internal.mz_hydration_statuses and the server's log."
            yield warn("server", text, advice)
        case _:
            yield warn("server", "does not accept SQL yet", "Wait, or look at its log.")
            return
    match _get(address, "/check"):
        case (200, _):
            yield ok("state of the server", "consistent")
        case (_, {"violated": violated}):
            advice = "Restart the server, and report this as a bug."
            yield fail("state of the server", str(violated), advice)
        case _:
            yield warn("state of the server", "could not be checked", "Try again.")
    metrics = (_read(address, "/metrics", MOST_METRICS) or b"").decode()
    yield from _failing(metrics)
    yield from _down(metrics)
    yield from _outside(metrics)
    yield from _dead_letters(metrics)
    yield from _slots(metrics)


def _failing(metrics: str) -> Iterator[Finding]:
    """Look for views and indexes whose data make reads of them fail.

    The names are those of the views that have series of their own; all are counted.
    """
    found = map(_labels, _ERRORS.findall(metrics))
    names = sorted({("index " if each["type"] == "index" else "") + each["view"] for each in found})
    count = max([len(names), *map(int, _FAILING.findall(metrics))])
    if count:
        shown = names[:MOST_NAMES]
        shown += [f"and {count - len(shown)} more"] * (count > len(shown))
        message = f"reads of {count} fail for their data: {', '.join(shown)}"
        advice = "See mz_internal.mz_view_errors; SELECT * FROM FAILING_ROWS(view) finds the rows."
        yield warn("data of views", message, advice)


def _down(metrics: str) -> Iterator[Finding]:
    """Look for views that stand still, and replicas and metrics that are not there."""
    for each in _DOWN:
        pattern = rf"^{each.metric}\{{(.*)\}} {each.value}(?:\.0)?$"
        found = re.findall(pattern, metrics, re.MULTILINE)
        names = sorted({_labels(labels)[each.label] for labels in found})
        if names:
            message = f"{each.message.format(len(names))}: {', '.join(names[:3])}"
            yield warn(each.name, message, each.advice)


def _outside(metrics: str) -> Iterator[Finding]:
    """Look at the states of sources and sinks, if there are any."""
    states = list(_states(metrics))
    for kind in ("source", "sink"):
        each = [(name, state) for of, name, state in states if of == kind]
        stalled = [(name, state) for name, state in each if state in ("stalled", "paused")]
        if stalled:
            how = " or ".join(sorted({state for _, state in stalled}))
            names = ", ".join(name for name, _ in stalled[:3])
            message = f"{len(stalled)} of {len(each)} {how}: {names}"
            advice = f"SELECT name, error FROM mz_internal.mz_{kind}_statuses says why."
            yield warn(f"{kind}s", message, advice)
        elif each:
            yield ok(f"{kind}s", f"{len(each)}, none stalled")


def _dead_letters(metrics: str) -> Iterator[Finding]:
    """Look for sources with messages that could not be used, those with most first."""
    counts = {_labels(labels)["source"]: int(float(n)) for labels, n in _LETTERS.findall(metrics)}
    found = sorted(((n, name) for name, n in counts.items() if n), key=lambda e: (-e[0], e[1]))
    if found:
        shown = [f"{name} ({n})" for n, name in found[:MOST_NAMES]]
        shown += [f"and {len(found) - len(shown)} more"] * (len(found) > len(shown))
        message = f"{len(found)} of {len(counts)} sources have some: {', '.join(shown)}"
        advice = "SOURCE_errors and SOURCE_late have them; mz_internal.mz_dead_letters counts them."
        yield warn("dead letters", message, advice)


def _slots(metrics: str) -> Iterator[Finding]:
    """Look for replication slots of sources that are about to be lost."""
    found: dict[str, dict[str, float]] = {}
    for kind, labels, value in _SLOT.findall(metrics):
        found.setdefault(_labels(labels)["source"], {})[kind] = float(value)
    scarce = sorted(
        source
        for source, each in found.items()
        if "safe" in each and each["safe"] < SCARCE * (each["safe"] + each.get("retained", 0))
    )
    if scarce:
        message = f"{len(scarce)} of {len(found)} are nearly lost: {', '.join(scarce[:3])}"
        advice = "Raise max_slot_wal_keep_size upstream, and see why the sources are behind."
        yield warn("replication slots", message, advice)


def _states(metrics: str) -> Iterator[tuple[str, str, str]]:
    """Yield kind, name and state of each source and sink."""
    for kind, labels in _STATE.findall(metrics):
        named = _labels(labels)
        yield kind, named[kind], named["state"]


def _labels(text: str) -> dict[str, str]:
    """Return the labels of a sample."""
    found = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', text)
    return {
        name: re.sub(r"\\(.)", lambda each: {"n": "\n"}.get(each[1], each[1]), value)
        for name, value in found
    }


def _get(address: tuple[str, int], path: str) -> tuple[int, object] | None:
    """Return status and JSON of an answer, None if there is none in time."""
    try:
        with urllib.request.urlopen(_url(address, path), timeout=SECONDS) as answer:
            return answer.status, json.loads(answer.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read(MOST_BYTES) or b"null")
    except (OSError, ValueError):
        return None


def _read(address: tuple[str, int], path: str, most: int) -> bytes | None:
    """Return the bytes of an answer, None if there is none in time."""
    try:
        with urllib.request.urlopen(_url(address, path), timeout=SECONDS) as answer:
            found: bytes = answer.read(most)
            return found
    except OSError:
        return None


def _url(address: tuple[str, int], path: str) -> str:
    host, number = address
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{number}{path}"
