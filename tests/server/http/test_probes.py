"""The probes of supervisors and of Prometheus."""

import asyncio
import json

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from starlette.applications import Starlette
from starlette.types import Message

from foreshore.server.http.origins import Origins
from foreshore.server.http.probes import MOST_SHOWN, Probes


class Observed:
    """An environment with some views that are not hydrated."""

    def __init__(self, waiting: list[str]) -> None:
        self.waiting = waiting

    async def metrics(self) -> list[Metric]:
        family = GaugeMetricFamily("foreshore_test", "A metric.", labels=["view"])
        family.add_metric(['a"b\nc'], 7)
        return [family]

    def not_hydrated(self) -> list[str]:
        return self.waiting


def get(probes: Probes, path: str, host: str = "localhost") -> tuple[int, str]:
    """Return status and text of a request."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    place, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "path": place,
        "query_string": query.encode(),
        "headers": [(b"host", host.encode())],
    }
    asyncio.run(Starlette(routes=probes.routes())(scope, receive, send))
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:]).decode()


def test_before_the_data_is_opened_only_the_loop_lives() -> None:
    starting = Probes(lambda: False, lambda: None)
    assert get(starting, "/livez") == (200, '{"status":"alive"}')
    assert get(starting, "/readyz")[0] == 503
    assert {get(starting, path)[0] for path in ("/health", "/healthz", "/api/readyz")} == {503}
    assert get(starting, "/api/livez")[0] == 200
    status, text = get(starting, "/metrics")
    assert status == 200
    assert "python_info" in text
    assert "foreshore_test" not in text


def test_ready_with_views_that_hydrate() -> None:
    observed = Observed([f"v{i}" for i in range(MOST_SHOWN + 5)])
    probes = Probes(lambda: True, lambda: observed)
    assert get(probes, "/readyz")[0] == get(probes, "/readyz?hydrated=0")[0] == 200
    status, text = get(probes, "/readyz?hydrated=1")
    assert status == 503
    told = json.loads(text)
    assert (told["count"], len(told["views"])) == (MOST_SHOWN + 5, MOST_SHOWN)
    observed.waiting = []
    assert get(probes, "/readyz?hydrated=1") == (200, '{"status":"ready"}')


def test_metrics_do_not_answer_to_the_name_of_a_page() -> None:
    probes = Probes(lambda: True, lambda: Observed([]), Origins(hosts=["db.example"]))
    for host in ("evil.example", "evil.example:6876", "", "localhost.evil.example", "[::1"):
        status, text = get(probes, "/metrics", host)
        assert status == 403, host
        assert "foreshore_test" not in text
        assert {get(probes, path, host)[0] for path in ("/livez", "/readyz", "/health")} == {200}
    for host in ("db.example", "DB.example:6876", "127.0.0.1:6876", "[::1]:6876", "10.1.2.3"):
        assert get(probes, "/metrics", host)[0] == 200, host


def test_metrics_of_environment_follow_those_of_the_process() -> None:
    _, text = get(Probes(lambda: True, lambda: Observed([])), "/metrics")
    assert text.index("python_info") < text.index("foreshore_test")
    assert 'foreshore_test{view="a\\"b\\nc"} 7.0' in text
    assert "_created" not in text
