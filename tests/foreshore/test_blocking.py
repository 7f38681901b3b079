"""Background work has low priority."""

import os
import subprocess
import sys
import threading

import pytest

from foreshore import blocking

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has priorities of threads"
)


def niceness(id: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, id)


def test_background_thread_and_children_have_low_priority() -> None:
    seen: list[int] = []

    def look() -> None:
        seen.append(niceness(threading.get_native_id()))
        started = threading.Thread(target=lambda: seen.append(niceness(threading.get_native_id())))
        started.start()
        started.join()

    before = niceness(threading.get_native_id())
    executor = blocking.background("test")
    executor.submit(look).result()
    executor.shutdown()
    assert seen == [min(19, before + blocking.NICENESS)] * 2
    assert niceness(threading.get_native_id()) == before


def test_low_priority_of_ended_process_is_ignored() -> None:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        blocking.lower_priority(process.pid)
        assert niceness(process.pid) == min(19, niceness(0) + blocking.NICENESS)
    finally:
        process.kill()
        process.wait()
    blocking.lower_priority(process.pid)
