"""Whether a piece of bulk work is done by DuckDB of the replica's process or by Spark: by its cost.

The rates are CPU on this project's two-core machine (docs/spark.md): on one machine Spark takes
twelve times DuckDB's CPU for TPC-H's joins and groups, and seconds to begin. It wins where it has
that many times the cores, or where DuckDB runs out of memory and of room to spill.
"""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from foreshore.extras import is_spark_installed
from foreshore.hydrate_mode import HydrateMode, checked_mode
from foreshore.memory_shares import MOST_BULK, of_bulk
from foreshore.sizes import bytes_of, shown

LOCAL_NS = 150  # of CPU for an update that DuckDB reads, joins and groups
SPARK_NS = 1_800  # the same for Spark, which also writes the rows and gives them over
SPARK_SECONDS = 1.5  # of a job, whatever it reads
START_SECONDS = 10.0  # of a session
EXPANSION = 4  # bytes in memory for a byte in files
SPILLING = 4  # times as long if DuckDB has to spill
DEFAULT_EXECUTOR_CORES = 2


@dataclass(frozen=True, slots=True)
class Volume:
    """The size of what a plan reads: updates, and the bytes of the columns in files."""

    rows: int
    bytes: int

    def __add__(self, other: "Volume") -> "Volume":
        """Return both together."""
        return Volume(self.rows + other.rows, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class Machines:
    """The resources for bulk work: DuckDB's threads, memory and spill space; Spark's cores."""

    threads: int = 2
    memory: int = MOST_BULK
    spill: int = 16 * 10**9
    spark_cores: int = 2

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> "Machines":
        """Return what a replica with these options has."""
        return cls(
            int(options.get("threads", "2")),
            bulk_memory(options),
            bytes_of(options.get("spill_limit", "16GB")),
            spark_cores(options),
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """The engine chosen for a volume, and the seconds that either is expected to take."""

    spark: bool
    mode: HydrateMode
    volume: Volume
    local_seconds: float
    spark_seconds: float

    @property
    def engine(self) -> str:
        """Return the engine's name."""
        return "spark" if self.spark else "duckdb"

    def __str__(self) -> str:
        """Return the choice and its reasons in one line, as EXPLAIN shows it."""
        found = f"{self.volume.rows:,} updates, {shown(self.volume.bytes)} of files"
        asked = "" if self.mode == "auto" else f", as HYDRATE = '{self.mode}' says"
        local = _seconds(self.local_seconds)
        return (
            f"{self.engine}{asked} ({found}; expected: duckdb {local},"
            f" spark {_seconds(self.spark_seconds)})"
        )


def choose(
    mode: HydrateMode, volume: Volume, machines: Machines, *, started: bool = False, jobs: int = 1
) -> Choice:
    """Return which engine does some work; Spark is up if it was `started`."""
    local = volume.rows * LOCAL_NS / 1e9 / machines.threads
    held = volume.bytes * EXPANSION
    if held > machines.memory + machines.spill:
        local = math.inf
    elif held > machines.memory:
        local *= SPILLING
    spark = volume.rows * SPARK_NS / 1e9 / machines.spark_cores + jobs * SPARK_SECONDS
    spark += 0 if started else START_SECONDS
    if not is_spark_installed():
        spark = math.inf
    return Choice(mode == "spark" or (mode == "auto" and spark < local), mode, volume, local, spark)


def bulk_memory(options: Mapping[str, str]) -> int:
    """Return the bytes of DuckDB beside arrangements: at most half of the replica's."""
    text = options.get("memory_limit")
    return of_bulk(None if text is None else bytes_of(text))


def mode_of(options: Mapping[str, str]) -> HydrateMode:
    """Return how a replica with these options hydrates, unless an object says otherwise."""
    return checked_mode(options.get("hydrate", "auto"))


def spark_cores(options: Mapping[str, str]) -> int:
    """Return how many cores a Spark of these options has: by its master, or as configured."""
    master = options.get("master", "local[*]")
    if found := re.match(r"local\[\s*(\*|\d+)", master):
        return (os.cpu_count() or 1) if found[1] == "*" else int(found[1])
    if found := re.match(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)", master):
        return int(found[1]) * int(found[2])
    if master == "local":
        return 1
    if "spark.cores.max" in options:
        return int(options["spark.cores.max"])
    cores = int(options.get("spark.executor.cores", DEFAULT_EXECUTOR_CORES))
    return cores * int(options.get("spark.executor.instances", "1"))


def _seconds(seconds: float) -> str:
    return "does not fit" if math.isinf(seconds) else f"{seconds:.1f} s"
