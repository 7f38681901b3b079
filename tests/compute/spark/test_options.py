"""What Spark is started with: masters, memory, the package of executors. No JVM runs here."""

import os
import zipfile
from pathlib import Path

import pytest

from foreshore.compute.hydrate.shards import merger_of
from foreshore.compute.spark.archive import archive_flags, archive_path, remove_abandoned
from foreshore.compute.spark.java import version_text
from foreshore.compute.spark.options import SparkOptions, driver_host
from foreshore.compute.spark.package import write_package


def test_options_of_a_cluster_are_properties_of_spark(tmp_path: Path) -> None:
    given = {
        "master": "spark://localhost:7077", "driver_memory": "2GiB", "executor_memory": "1GiB",
        "shuffle_partitions": "8", "spark.executor.cores": "4", "blob": "file:///b",
    }  # fmt: skip
    options = SparkOptions.of(given, tmp_path)
    found = options.properties()
    assert found["spark.master"] == "spark://localhost:7077"
    assert found["spark.driver.memory"] == "2048m"
    assert found["spark.executor.memory"] == "1024m"
    assert found["spark.executor.cores"] == "4"
    assert found["spark.driver.host"] == "127.0.0.1"
    assert options.shuffle_partitions == 8
    assert "blob" not in found


@pytest.mark.parametrize(
    ("master", "local", "host"),
    [
        ("local", True, "127.0.0.1"),
        ("local[2]", True, "127.0.0.1"),
        ("local-cluster[2, 1, 1024]", False, "127.0.0.1"),
        ("spark://127.0.0.1:7077", False, "127.0.0.1"),
        ("yarn", False, None),
        ("k8s://https://127.0.0.1:6443", False, None),
    ],
)
def test_the_driver_listens_where_executors_reach_it(
    tmp_path: Path, master: str, local: bool, host: str | None
) -> None:
    assert SparkOptions(tmp_path, master).is_local is local
    assert driver_host(master) == host


def test_executors_get_every_module(tmp_path: Path) -> None:
    names = zipfile.ZipFile(write_package(tmp_path / "package.zip")).namelist()
    assert len(names) == len(set(names))
    for module in ("__init__", "errors", "expr/functions/text", "compute/render/exact"):
        assert f"foreshore/{module}.py" in names
    assert not [name for name in names if name.startswith("foreshore/tests")]


def test_directories_of_archives_that_were_not_ended_are_removed(tmp_path: Path) -> None:
    for name in ("begun-old", "begun-new"):
        (tmp_path / name).mkdir()
    (tmp_path / "spark-x.jsa").touch()
    os.utime(tmp_path / "begun-old", (1000, 1000))
    os.utime(tmp_path / "spark-x.jsa", (1000, 1000))
    remove_abandoned(tmp_path, 2000)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["begun-new", "spark-x.jsa"]


def test_an_archive_is_of_one_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jar = tmp_path / "jars" / "spark.jar"
    jar.parent.mkdir()
    jar.write_bytes(b"1")
    path = archive_path("/bin/false", str(tmp_path))
    assert archive_flags("/bin/false", str(tmp_path)) == []
    path.parent.mkdir(parents=True)
    path.touch()
    assert archive_flags("/bin/false", str(tmp_path)) == [f"-XX:SharedArchiveFile={path}"]
    jar.write_bytes(b"2 of another size")
    assert archive_flags("/bin/false", str(tmp_path)) == []


def test_options_of_the_environment_are_no_part_of_a_java(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text(
        "#!/bin/sh\necho 'NOTE: Picked up JDK_JAVA_OPTIONS: -Xint' >&2\n"
        "echo 'openjdk version \"17.0.1\"' >&2\n"
    )
    java.chmod(0o755)
    assert version_text(str(java)) == 'openjdk version "17.0.1"'


def test_compaction_has_the_properties_that_the_server_was_given() -> None:
    merger = merger_of("local[2]", 1, {"spark.executor.cores": "2"})
    assert merger._lender._options.properties()["spark.executor.cores"] == "2"
    merger.close()
