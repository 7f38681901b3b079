"""The recipes of docs/alerts.md: views of what is wrong, told to Slack and to Alertmanager."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sinks.test_webhook_sink import Receiver

PAGE = (Path(__file__).parents[3] / "docs" / "alerts.md").read_text()
STATEMENTS = [
    each
    for block in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    for each in block.split(";\n")
]


@pytest.fixture
def slack() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def alertmanager() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


def bodies(receiver: Receiver) -> list[Any]:
    return [json.loads(body) for _, body in receiver.requests]


@pytest.mark.full  # seven objects and three sinks
async def test_recipes_tell_when_alerts_begin_and_end(
    own_env: TestEnvironment, slack: Receiver, alertmanager: Receiver
) -> None:
    env = own_env
    for statement in filter(str.strip, STATEMENTS):
        text = re.sub(r"'https://hooks[^']*'", f"'{slack.url}', PRIVATE", statement)
        text = re.sub(r"'https://alertm[^']*'", f"'{alertmanager.url}', PRIVATE", text)
        await env.ran("a", text)
    at = "TIMESTAMPTZ '2026-01-01 10:00:00+00'"
    await env.ran("a", f"INSERT INTO readings VALUES ('m1', {at}, 95), ('m2', now(), 20)")
    await env.ran("a", "WAIT FOR ALL SINKS")
    assert sorted(each["text"] for each in bodies(slack)) == [
        ":fire: m1 is too hot since 2026-01-01 10:00:00+00",
        "m1 is silent since 2026-01-01 10:00:00+00",
    ]
    ((fires,),) = bodies(alertmanager)
    assert fires == {
        "labels": {"alertname": "TooHot", "machine": "m1", "severity": "page"},
        "annotations": {"summary": "m1 is too hot"},
        "startsAt": "2026-01-01T10:00:00+00:00",
        "endsAt": "2100-01-01T00:00:00Z",
    }
    await env.ran("a", "DELETE FROM readings", "WAIT FOR ALL SINKS")
    assert bodies(slack)[2:] == [{"text": "m1 is well again"}]
    assert bodies(alertmanager)[1:] == [[{**fires, "endsAt": "2026-01-01T10:00:00.001+00:00"}]]
