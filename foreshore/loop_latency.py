"""The latency of the event loop: how long ready work waits until the loop runs it.

One loop handles messages of clients, replicas and storage, and background work. A long computation
or too much work delays all of them, by about as much as it delays a timer. So ten times a second a
timer is set, and its delay is recorded: in a histogram for Prometheus, and for the system's
relations as a summary of each of the last 60 seconds. A timer of the loop is exact to a
millisecond.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from prometheus_client import Histogram

from foreshore.clock import Clock
from foreshore.update import Timestamp

PROBE_SECONDS = 0.1
WINDOW_SECONDS = 1.0
WINDOWS = 60

LATENCY = Histogram(
    "foreshore_loop_latency_seconds",
    "How late the message loop came to a timer.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)


@dataclass(frozen=True, slots=True)
class LatencyWindow:
    """The delays in about a second, or in a longer time if the loop was blocked for longer."""

    end: Timestamp  # by the wall clock
    length_ms: int
    probes: int
    average_ms: float
    greatest_ms: float


class LoopLatency:
    """Measures the running loop between `start` and `close`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._windows: deque[LatencyWindow] = deque(maxlen=WINDOWS)
        self._delays: list[float] = []  # in seconds, of the current window
        self._began = self._set = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def windows(self) -> Sequence[LatencyWindow]:
        """Return the last windows, oldest first, without the current one."""
        return tuple(self._windows)

    def start(self) -> None:
        """Start to measure."""
        self._began = perf_counter()
        self._set_timer()

    def close(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        self._set = perf_counter()
        self._timer = asyncio.get_running_loop().call_later(PROBE_SECONDS, self._fired)

    def _fired(self) -> None:
        now = perf_counter()
        delay = max(0.0, now - self._set - PROBE_SECONDS)
        LATENCY.observe(delay)
        self._delays.append(delay)
        if now - self._began >= WINDOW_SECONDS:
            self._windows.append(
                LatencyWindow(
                    self._clock.now(),
                    round((now - self._began) * 1000),
                    len(self._delays),
                    sum(self._delays) / len(self._delays) * 1000,
                    max(self._delays) * 1000,
                )
            )
            self._delays, self._began = [], now
        self._set_timer()
