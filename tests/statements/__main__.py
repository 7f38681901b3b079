"""Run random statements by hand.

    python -m tests.statements --seed 1 --count 20000 --postgres postgres://postgres@127.0.0.1/postgres

Without an address it starts a PostgreSQL of its own.
"""

import argparse
import asyncio
import tempfile
from contextlib import nullcontext
from pathlib import Path

from tests.harness import postgres
from tests.statements.oracle import Count, Found, run_rounds

OF_A_ROUND = 60


def main() -> None:
    """Run the statements that are asked for, and print what differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.statements", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--count", type=int, default=1000, help="statements")
    parser.add_argument("--postgres", help="the address of a running PostgreSQL, or `none`")
    parser.add_argument("--each", type=int, default=OF_A_ROUND, help="statements of a round")
    options = parser.parse_args()

    def report(seed: int, count: Count, found: list[Found]) -> None:
        for each in found:
            print(each, flush=True)
        print(
            f"seed {seed}: {count.statements} statements, {count.executions} executions, "
            f"{count.failed} errors, {count.by_rows} answered by rows, "
            f"{count.gave_up} left to columns, {len(count.found)} differ",
            flush=True,
        )

    given = options.postgres
    server = nullcontext(None if given == "none" else given) if given else postgres()
    rounds = max(1, options.count // options.each)
    with server as url, tempfile.TemporaryDirectory() as directory:
        seeds = range(options.seed, options.seed + rounds)
        count = asyncio.run(run_rounds(Path(directory), url, seeds, options.each, report))
    print(count.statements, "statements,", len(count.found), "differ; errors:", dict(count.codes))


if __name__ == "__main__":
    main()
