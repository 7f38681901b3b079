"""The logs of all processes, as lines for people and as JSON."""

import asyncio
import json
import logging
import subprocess
import sys

import pytest

from foreshore.errors import Unavailable
from foreshore.logs import MOST_VALUE, JsonFormatter, TextFormatter, configure, logged_request


def record(
    message: str, *args: object, error: BaseException | None = None, **extra: object
) -> logging.LogRecord:
    found = logging.LogRecord("foreshore.x", logging.WARNING, "x.py", 1, message, args, None)
    if error is not None:
        found.exc_info = (type(error), error, None)
    vars(found).update(extra)
    return found


def test_json_record_is_one_line_with_its_values() -> None:
    line = JsonFormatter("replica").format(
        record("lost\n%s", "it", shard="u1", rows=3, level="x", error=Unavailable("no\nroom"))
    )
    assert "\n" not in line
    told = json.loads(line)
    assert told["message"] == "lost\nit"
    assert (told["level"], told["process"], told["logger"]) == ("warning", "replica", "foreshore.x")
    assert (told["shard"], told["rows"], told["level_"]) == ("u1", 3, "x")
    assert told["sqlstate"] == Unavailable.sqlstate
    assert "no\nroom" in told["exception"]
    assert told["time"].endswith("Z")
    assert told["pid"] > 0


def test_any_value_is_shown_and_long_ones_are_cut() -> None:
    told = json.loads(JsonFormatter("x").format(record("m", a=object, b=None, c="y" * 99_999)))
    assert told["a"] == "<class 'object'>"
    assert told["b"] is None
    assert len(told["c"]) == MOST_VALUE + 3


def test_text_record_ends_with_its_values() -> None:
    line = TextFormatter("server").format(record("lost", shard="u1"))
    assert line.endswith("WARNING foreshore.x: lost (shard=u1)")
    assert TextFormatter("server").format(record("lost")).endswith(": lost")


def test_what_a_request_has_started_is_not_logged_as_its_own_when_it_is_over() -> None:
    def logged() -> object:
        return json.loads(JsonFormatter("server").format(record("m"))).get("request")

    async def replica(is_over: asyncio.Event) -> list[object]:
        found = [logged()]
        await is_over.wait()
        return [*found, logged()]

    async def go() -> list[object]:
        is_over = asyncio.Event()
        with logged_request("r1"):
            task = asyncio.create_task(replica(is_over))
            await asyncio.sleep(0)
        is_over.set()
        return await task

    assert asyncio.run(go()) == ["r1", None]


def test_unknown_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORESHORE_LOG_FORMAT", "xml")
    with pytest.raises(ValueError, match="'xml', not one of text, json"):
        configure("server")


def test_process_logs_as_its_environment_says() -> None:
    script = (
        "from foreshore import logs; import logging; logs.configure('ingest'); logging.info('a')"
    )
    environment = {"FORESHORE_LOG_FORMAT": "json", "FORESHORE_LOG_LEVEL": "info"}
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, env=environment
    )
    assert json.loads(ran.stderr)["process"] == "ingest"
