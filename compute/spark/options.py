"""Where Spark runs and what it may take, from the options of a cluster or of the server.

master              local, local[N], spark://HOST:PORT, k8s://URL, yarn
driver_memory       heap of the JVM beside this process
executor_memory     heap of each executor; with a local master the driver is the executor
shuffle_partitions  partitions of a shuffle in large jobs; default: two for each core
spark.*             any other property of Spark

Two properties are Foreshore's. A statement of a step that reads less than
`spark.foreshore.step.bytes` is computed by DuckDB beside the driver, from the same files. So is a
hydration from inputs of less than `spark.foreshore.hydrate.bytes`.
"""

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from foreshore.sizes import bytes_of

LOOPBACK = "127.0.0.1"
DRIVER_MEMORY_MB = 1536
STEP_BYTES = 256 << 20
# Jobs take seconds, and DuckDB about a second for as much as this.
HYDRATE_BYTES = 32 << 20

# Properties that hold for all sessions of a process.
_PROPERTIES = {
    "spark.app.name": "foreshore",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # A product of decimals keeps its scale or fails; it is never rounded.
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    # Other than INT96 it has statistics, and its whole range can be read by others.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Looking up random keys in the dictionaries costs more than reading the column.
    "spark.hadoop.parquet.filter.dictionary.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.timeType.enabled": "true",
    "spark.scheduler.mode": "FAIR",
    "spark.locality.wait": "0",
    "spark.cleaner.referenceTracking.cleanCheckpoints": "true",
    "spark.sql.codegen.cache.maxEntries": "1000",
}


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Options for starting Spark. `scratch` is for spilled data and the log."""

    scratch: Path
    master: str = "local[*]"
    memory_mb: int = DRIVER_MEMORY_MB
    configuration: Mapping[str, str] = field(default_factory=dict)
    executor_memory_mb: int | None = None
    shuffle_partitions: int | None = None
    # Whether to make a class-data archive for later starts, if there is none.
    makes_archive: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str], scratch: Path) -> "SparkOptions":
        """Return what a cluster's options say."""
        executor = options.get("executor_memory")
        partitions = options.get("shuffle_partitions")
        return cls(
            scratch,
            options.get("master", "local[*]"),
            megabytes(options.get("driver_memory", f"{DRIVER_MEMORY_MB}MiB")),
            {name: value for name, value in options.items() if name.startswith("spark.")},
            None if executor is None else megabytes(executor),
            None if partitions is None else int(partitions),
            makes_archive=True,
        )

    @property
    def step_bytes(self) -> int:
        """Return how much of its files a statement of a step must read to be a job of Spark."""
        return bytes_of(self.configuration.get("spark.foreshore.step.bytes", f"{STEP_BYTES}B"))

    @property
    def hydrate_bytes(self) -> int:
        """Return how much inputs must have for a dataflow to be hydrated by jobs."""
        least = self.configuration.get("spark.foreshore.hydrate.bytes", f"{HYDRATE_BYTES}B")
        return min(bytes_of(least), self.step_bytes)

    @property
    def is_local(self) -> bool:
        """Whether tasks run in the JVM of this machine that is the driver's."""
        return re.match(r"local(\[|$)", self.master) is not None

    def properties(self) -> dict[str, str]:
        """Return all properties with which Spark is started."""
        host = driver_host(self.master)
        found = {
            **_PROPERTIES,
            "spark.master": self.master,
            "spark.driver.memory": f"{self.memory_mb}m",
            "spark.local.dir": str(self.scratch / "local"),
            "spark.sql.warehouse.dir": str(self.scratch / "warehouse"),
        }
        if host is not None:
            found["spark.driver.host"] = found["spark.driver.bindAddress"] = host
        if self.executor_memory_mb is not None:
            found["spark.executor.memory"] = f"{self.executor_memory_mb}m"
        if not self.is_local:
            # Executors are lost without harm: others run their tasks again.
            found["spark.excludeOnFailure.enabled"] = "false"
            found["spark.task.maxFailures"] = "8"
        return {**found, **self.configuration}


def megabytes(text: str) -> int:
    """Return a size such as 2GB in megabytes, at least 512, of which Spark needs most."""
    return max(bytes_of(text) >> 20, 512)


def driver_host(master: str) -> str | None:
    """Return the address at which executors reach the driver, None if Spark is to find it.

    It is the loopback interface, unless the master is on another machine: then it is that of the
    interface by which packets go there.
    """
    match = re.match(r"spark://(\[[^]]+\]|[^:,]+):(\d+)", master)
    if match is None:
        return None if master == "yarn" or master.startswith("k8s://") else LOOPBACK
    host = match[1].strip("[]")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, int(match[2]))[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:  # it sends nothing
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return None
