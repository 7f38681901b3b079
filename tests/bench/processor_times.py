"""What processes of a server have used of the processors, for benchmarks."""

import os
from collections.abc import Mapping
from pathlib import Path

from tests.harness import Server


def processor_seconds(server: Server, part: str, module: str) -> dict[str, float]:
    """Return the processor time of a server so far, and of its processes that run `module`.

    The latter are called `part`. Both are in seconds.
    """
    assert server.process is not None
    found = {part: 0.0, "server": 0.0}
    for pid in server.processes():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue  # it has ended
        seconds = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        if module.encode() in command:
            found[part] += seconds
        elif pid == server.process.pid:
            found["server"] += seconds
    return found


def since(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return what was used between two times."""
    return {which: after[which] - before.get(which, 0.0) for which in after}


def in_words(count: int, took: float, used: Mapping[str, float]) -> str:
    """Return a measurement of so many messages in words; `took` is in seconds."""
    each = ", ".join(
        f"{which} {seconds:.2f} s ({count / max(seconds, 0.01):,.0f}/s and core)"
        for which, seconds in used.items()
    )
    return f"{count:,} in {took:.2f} s, {count / took:,.0f}/s; {each}"
