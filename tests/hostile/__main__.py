"""A soak: a hostile role beside 16 honest clients that check their answers.

    python -m tests.hostile --minutes 60
    python -m tests.hostile --minutes 5 --only messages

Each kind of `kinds/` has its share of the time, in turns, so that kinds meet a server that others
have left. It prints the latencies of the honest clients by kind, what was wrong, and deaths. It
fails if there was any, or if the honest clients' 99th percentile was above 250 ms.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.harness import Server
from tests.hostile.bystander import Honest, bystanders, growth, honest, quantile, resident, spread
from tests.hostile.honest import Sample
from tests.hostile.kinds.registry import Attack, Target, every_kind

CLIENTS = 16
PER_SECOND = 10  # hostile inputs begun
AT_ONCE = 8
TURN_S = 10.0
P99_S = 0.25
LONGEST_S = 30.0  # of one hostile input


async def attacked(target: Target, attack: Attack, seconds: float, chance: random.Random) -> int:
    """Do one kind of hostile thing for some time; return how often."""
    began, count = time.monotonic(), 0
    running: set[asyncio.Task[None]] = set()

    async def one(seed: int) -> None:
        with suppress(Exception):  # what a hostile client gets does not matter
            async with asyncio.timeout(LONGEST_S):
                await attack(target, random.Random(seed))

    while time.monotonic() < began + seconds:
        if len(running) >= AT_ONCE:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED, timeout=1.0)
            running = {each for each in running if not each.done()}
            continue
        running.add(asyncio.create_task(one(chance.getrandbits(32))))
        count += 1
        await asyncio.sleep(1 / PER_SECOND)
    if running:
        await asyncio.wait(running)
    return count


def soak(server: Server, kinds: dict[str, Attack], minutes: float, clients: Honest) -> bool:
    """Attack a server; return whether all was well."""
    target = Target(server.port, server.http_port)
    end, chance, deaths = time.monotonic() + minutes * 60, random.Random(0), 0
    counts: dict[str, int] = defaultdict(int)
    periods: list[tuple[str, float, float]] = []
    before = resident(server)
    while time.monotonic() < end:
        for name in chance.sample(sorted(kinds), len(kinds)):
            began = time.monotonic()
            turn = min(TURN_S, minutes * 60 / len(kinds))
            counts[name] += asyncio.run(attacked(target, kinds[name], turn, chance))
            periods.append((name, began, time.monotonic()))
            grown = growth(before, resident(server)) / 1e6
            print(f"{name}: {periods[-1][2] - began:.1f} s, grown by {grown:.0f} MB", flush=True)
            assert server.process is not None
            if server.process.poll() is not None:
                deaths += 1
                print(f"DEATH in {name}: {server.process.returncode}", flush=True)
                server.start()
            if time.monotonic() > end:
                break
    return told(clients.samples(), periods, counts, server) and not deaths


def told(
    samples: list[Sample],
    periods: list[tuple[str, float, float]],
    counts: dict[str, int],
    server: Server,
) -> bool:
    """Print what honest clients met; return whether that was well."""
    by_kind: dict[str, list[Sample]] = defaultdict(list)
    for name, began, ended in periods:
        by_kind[name] += [each for each in samples if began <= each.began <= ended]
    for name, found in sorted(by_kind.items()):
        seconds = [each.seconds for each in found if not each.wrong]
        print(f"{name} ({counts[name]} inputs): {spread(seconds)}")
    wrong = [each for each in samples if each.wrong]
    for each in wrong[:100]:
        print(f"WRONG {each.kind}: {each.wrong}")
    slow = server.slow_callbacks()
    print(*slow[:100], sep="\n")
    seconds = [each.seconds for each in samples if not each.wrong]
    print(f"{len(wrong)} wrong, {len(slow)} slow callbacks; all: {spread(seconds)}")
    return not wrong and quantile(seconds, 0.99) < P99_S


def main() -> None:
    """Run the soak."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only", default="", help="kinds whose names begin so")
    options = parser.parse_args()
    kinds = {k: run for k, run in every_kind().items() if k.startswith(options.only)}
    with (
        TemporaryDirectory() as folder,
        bystanders(Path(folder) / "data") as server,
        honest(server, CLIENTS) as clients,
    ):
        well = soak(server, kinds, options.minutes, clients)
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
