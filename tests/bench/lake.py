"""What commits of a sink to a lake table write, and how fast a followed table has the changes.

    python -m tests.bench.lake [--format delta] [--rows 1000000] [--keys 100] [--commits 10]
        [--more "PARTITION BY 'bucket(1024, k)', RETENTION '1 min'"]

A table of rows of three columns is exported by UPSERT, and followed by a source. Then a number of
keys all over the table change, commit by commit, and at last all rows. Prints seconds, and the
bytes of the files that were written; and how many files and versions there are at the end. `--more`
are options of the target.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from tests.adapter.harness import TestEnvironment
from tests.adapter.lakes import connected, reading
from tests.adapter.sources.test_files import reaches
from tests.iceberg_catalog import serving


def written(place: Path) -> int:
    """Return the bytes of all files of rows and of deletes, also those that are out of use."""
    return sum(file.stat().st_size for file in place.rglob("*.parquet"))


def left(place: Path) -> str:
    """Return how many files of each kind there are, and their bytes."""
    found: dict[str, list[int]] = {}
    for file in place.rglob("*.*"):
        if file.is_file():
            log = "log " if file.parent.name in ("_delta_log", "metadata") else ""
            found.setdefault(log + file.suffix, []).append(file.stat().st_size)
    return ", ".join(f"{len(of)} {kind} ({sum(of):,} bytes)" for kind, of in found.items())


def statements(format: str, place: Path, more: str) -> tuple[str, str]:
    """Return what follows FROM of a sink, and the name of a source."""
    if format == "iceberg":
        name = ", ".join(filter(None, ("NAMESPACE 'n', TABLE 't', LOCAL FILES", more)))
        target = f"INTO ICEBERG CATALOG CONNECTION c ({name}) WITH (COMMIT INTERVAL '10 ms')"
        return target, reading("t")
    options = ", ".join(filter(None, (f"URL '{place}/t'", more)))
    target = f"INTO DELTA ({options}) WITH (COMMIT INTERVAL '10 ms')"
    return target, f"FROM FILES '{place}/t' (FORMAT delta, POLL INTERVAL '10 ms')"


async def measure(
    env: TestEnvironment,
    format: str,
    place: Path,
    rows: int,
    keys: int,
    commits: int,
    more: str = "",
) -> None:
    """Print the figures."""
    target, source = statements(format, place, more)
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, v text, n int8)")
    some = f"SELECT i, 'value ' || i, i * 7 FROM generate_series(1, {rows}) i"
    await env.ran("a", f"INSERT INTO t {some}")
    begin = time.monotonic()
    await env.ran("a", f"CREATE SINK out FROM t {target}", "WAIT FOR SINKS out")
    print(f"{rows} rows in the table: {time.monotonic() - begin:.1f} s, {written(place):,} bytes")
    begin = time.monotonic()
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, "SELECT count(*) FROM s", str(rows))
    print(f"and in the source: {time.monotonic() - begin:.1f} s")
    seconds, followed, sizes = [], [], []
    for number in range(commits):
        before, begin = written(place), time.monotonic()
        apart = rows // keys
        change = f"UPDATE t SET v = 'c{number}' WHERE k % {apart} = {number % apart}"
        await env.ran("a", change, "WAIT FOR SINKS out")
        seconds.append(time.monotonic() - begin)
        await reaches(env, f"SELECT count(*) FROM s WHERE v = 'c{number}'", str(keys))
        followed.append(time.monotonic() - begin)
        sizes.append(written(place) - before)
    print(
        f"{keys} keys: {statistics.median(seconds):.2f} s in the table,"
        f" {statistics.median(followed):.2f} s in the source; {statistics.median(sizes):,.0f} bytes"
        f" a commit, {max(sizes):,} at most"
    )
    print(f"{left(place)}; the last ten took {statistics.median(seconds[-10:]):.2f} s")
    before, begin = written(place), time.monotonic()
    await env.ran("a", "UPDATE t SET v = 'all'", "WAIT FOR SINKS out")
    there = time.monotonic() - begin
    await reaches(env, "SELECT count(*) FROM s WHERE v = 'all'", str(rows))
    print(
        f"all rows: {there:.1f} s in the table, {time.monotonic() - begin:.1f} s in the source;"
        f" {written(place) - before:,} bytes"
    )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--format", choices=("iceberg", "delta"), default="iceberg")
    for name, default in (("rows", 1_000_000), ("keys", 100), ("commits", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--more", default="")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, asyncio.Runner() as runner:
        place = Path(directory, "lake")
        place.mkdir()
        with serving(place) as catalog:
            env = TestEnvironment(Path(directory, "data"))

            async def run() -> None:
                await env.open()
                await connected(env, catalog, Path(directory))
                counts = (args.rows, args.keys, args.commits)
                await measure(env, args.format, place, *counts, args.more)
                await env.close()

            runner.run(run())


if __name__ == "__main__":
    main()
