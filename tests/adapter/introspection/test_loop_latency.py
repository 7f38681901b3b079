"""Latency of the event loop, measured and shown."""

import asyncio
import time
from pathlib import Path

from prometheus_client import REGISTRY

from foreshore.clock import ManualClock
from foreshore.loop_latency import PROBE_SECONDS, WINDOWS, LoopLatency
from tests.adapter.harness import TestEnvironment, until

SHOWN = (
    "SELECT count(*) FROM mz_internal.mz_message_loop_latency"
    " WHERE max_ms BETWEEN {0} AND {0} + 5000 AND avg_ms BETWEEN 0 AND max_ms AND window_ms >= 1000"
    " AND window_end BETWEEN now() - interval '1 minute' AND now() + interval '1 second'"
)


def test_blocked_loop_appears_in_relation(tmp_path: Path) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        try:
            held_up = 2_000  # milliseconds; more than a busy machine does by itself
            shown = SHOWN.format(held_up - 200)  # the timer was already running
            assert await env.query("s", shown) == "0\nSELECT 1"
            seen = REGISTRY.get_sample_value("foreshore_loop_latency_seconds_sum") or 0
            time.sleep(held_up / 1000)  # noqa: ASYNC251 - the fault that is to be found
            began = env.environment.coordinator.loop_latency.windows
            await until(lambda: env.environment.coordinator.loop_latency.windows != began)
            assert await env.query("s", shown) == "1\nSELECT 1"
            total = REGISTRY.get_sample_value("foreshore_loop_latency_seconds_sum")
            assert total is not None
            assert total - seen >= (held_up - 200) / 1000
        finally:
            await env.close()

    asyncio.run(main())


def test_window_has_latency_of_its_probes() -> None:
    async def main() -> None:
        latency = LoopLatency(ManualClock(7))
        latency.start()
        await until(lambda: len(latency.windows) == 1)
        (window,) = latency.windows
        assert window.end == 7
        assert 0 <= window.average_ms <= window.greatest_ms
        assert 1 <= window.probes <= window.length_ms / (PROBE_SECONDS * 1000)
        latency.close()
        await asyncio.sleep(3 * PROBE_SECONDS)
        assert latency.windows == (window,)

    asyncio.run(main())


def test_only_last_minute_of_latency_is_kept() -> None:
    async def main() -> None:
        clock = ManualClock()
        latency = LoopLatency(clock)
        for second in range(2 * WINDOWS):
            clock.time = second
            latency._set = latency._began = time.perf_counter() - 1 - PROBE_SECONDS
            latency._fired()
            latency.close()
        assert [window.end for window in latency.windows] == [*range(WINDOWS, 2 * WINDOWS)]
        assert all(window.greatest_ms >= 1000 for window in latency.windows)

    asyncio.run(main())
