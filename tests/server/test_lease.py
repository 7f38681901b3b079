"""The lease: the server sends answers only soon after a check that it owns the data."""

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from foreshore.server.lease import LEASE_SECONDS, Lease
from foreshore.server.server_lock import PATIENCE_SECONDS
from foreshore.server.wire import SEND_AT, Wire
from foreshore.storage.epoch import fenced
from tests.adapter.harness import until


class Data:
    """Data that another server may take over, and a clock that tests advance."""

    def __init__(self) -> None:
        self.now = 100.0
        self.checks = 0
        self.fault: Exception | None = None
        self.may_check = threading.Event()
        self.may_check.set()
        self.check_seconds = 0.0

    def elapsed(self) -> float:
        return self.now

    def check_owned(self) -> None:
        self.checks += 1
        fault = self.fault
        self.now += self.check_seconds
        assert self.may_check.wait(20)
        if fault is not None:
            raise fault

    def lease(self) -> Lease:
        return Lease(self.check_owned, self.elapsed)


class Transport(asyncio.Transport):
    """A transport that records what was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def wired(lease: Lease) -> tuple[Wire, Transport]:
    """Return a wire that the test uses as a conversation does."""
    wire, transport = Wire(lease, lambda _: asyncio.create_task(asyncio.sleep(0))), Transport()
    wire.connection_made(transport)
    return wire, transport


def with_data(scenario: Callable[[Data], Coroutine[Any, Any, None]]) -> None:
    data = Data()
    try:
        asyncio.run(scenario(data))
    finally:
        data.may_check.set()


def test_lease_counts_from_start_of_check() -> None:
    assert LEASE_SECONDS < PATIENCE_SECONDS

    async def scenario(data: Data) -> None:
        lease = data.lease()
        assert not lease.is_valid()
        data.check_seconds = 1.0
        await lease.renew()
        data.now = 100.0 + LEASE_SECONDS - 0.01
        assert lease.is_valid()
        data.now = 100.0 + LEASE_SECONDS
        assert not lease.is_valid()
        data.check_seconds = LEASE_SECONDS  # the process stood still during the check
        await lease.renew()
        assert not lease.is_valid()

    with_data(scenario)


def test_clock_that_goes_back_does_not_prolong_lease() -> None:
    async def scenario(data: Data) -> None:
        lease = data.lease()
        await lease.renew()
        data.now -= 0.01
        assert not lease.is_valid()
        await lease.renew()
        assert lease.is_valid()

    with_data(scenario)


def test_lease_is_renewed_in_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foreshore.server.lease.CHECK_SECONDS", 0.01)

    async def scenario(data: Data) -> None:
        async with data.lease() as lease:
            for _ in range(3):
                data.now += LEASE_SECONDS - 1
                assert lease.is_valid()
                seen = data.checks
                await until(lambda: data.checks > seen + 1)  # noqa: B023 - before the next round

    with_data(scenario)


def test_output_after_lease_ran_out_waits_for_renewal() -> None:
    async def scenario(data: Data) -> None:
        async with data.lease() as lease:
            wire, transport = wired(lease)
            wire.put(b"a")
            wire.flush()
            assert transport.sent == b"a"
            data.may_check.clear()
            data.now += LEASE_SECONDS
            for part in (b"b", b"c"):
                wire.put(part)
                wire.flush()
            wire.put(bytes(SEND_AT))
            relieved = asyncio.create_task(wire.relieve())
            await until(lambda: data.checks >= 2)
            assert transport.sent == b"a"
            assert not relieved.done()
            data.may_check.set()
            await relieved
            assert transport.sent == b"abc" + bytes(SEND_AT)

    with_data(scenario)


@pytest.mark.parametrize(
    "fault", [fenced(), OSError("the disk is gone")], ids=["fenced", "unknown owner"]
)
def test_wire_whose_lease_has_ended_sends_only_the_reason(fault: Exception) -> None:
    async def scenario(data: Data) -> None:
        async with data.lease() as lease:
            wire, transport = wired(lease)
            wire.put(b"rows")
            data.now += LEASE_SECONDS
            data.fault = fault
            wire.flush()
            await until(lambda: lease.failure is fault)
            data.now -= LEASE_SECONDS
            wire.flush()
            assert not lease.is_valid()
            assert transport.sent == b""
            wire.close(b"why")
            assert transport.sent == b"why"
            assert transport.closed

    with_data(scenario)


def test_lost_connection_that_nobody_waits_to_write_to_is_no_fault() -> None:
    async def scenario(data: Data) -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        lease = data.lease()
        await lease.renew()
        wire, _ = wired(lease)
        wire.pause_writing()
        wire.connection_lost(ConnectionResetError())
        await asyncio.sleep(0)
        del wire
        gc.collect()
        assert not faults

    with_data(scenario)
