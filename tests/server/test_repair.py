"""`foreshore repair` mends a catalog that names what does not exist; the doctor finds one."""

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from foreshore.catalog.dangling import dangling
from foreshore.processes.owner import LOCK_FILE
from foreshore.server.doctor import data
from foreshore.server.doctor.below import Below
from foreshore.server.main import _contents, main
from foreshore.server.server_lock import ServerLock
from tests.adapter.ddl.broken_catalog import break_catalog
from tests.adapter.harness import TestEnvironment, in_environment

BELOW = Below(_contents, lambda: "Java 17", lambda: 8 << 30)


def found_in(data_dir: Path) -> dict[str, str]:
    return {each.name: each.state for each in data.contents(data_dir, BELOW)}


def test_repair_mends_what_the_doctor_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(env: TestEnvironment) -> None:
        await break_catalog(env, monkeypatch)

    in_environment(tmp_path, broken)
    assert found_in(tmp_path) == {"data": "ok", "catalog": "fail"}
    done = CliRunner().invoke(main, ["repair", str(tmp_path)])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert all(line.startswith("removed: ") for line in lines)
    assert any("table ut" in line and "grantee o" in line for line in lines)
    assert found_in(tmp_path) == {"data": "ok", "catalog": "ok"}
    again = CliRunner().invoke(main, ["repair", str(tmp_path)])
    assert (again.exit_code, again.output) == (0, "nothing to repair\n")

    async def mended(env: TestEnvironment) -> None:
        assert dangling(env.environment.coordinator.state) == []
        await env.environment.coordinator.check_settled()
        assert "cc" not in await env.ran("a", "SHOW PRIVILEGES")
        acl = "SELECT relacl, pg_get_userbyid(relowner) FROM pg_class WHERE relname = 'ut'"
        assert await env.ran("a", acl) == "{foreshore=arwdDxt/foreshore}|foreshore\nSELECT 1"
        await env.ran("a", "CREATE TABLE later (a int)", "SELECT * FROM owned_view")

    in_environment(tmp_path, mended)


def test_repair_is_refused_while_a_server_has_the_data(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()

    async def held() -> None:
        lock = ServerLock(tmp_path)
        await lock.acquire(asyncio.Event())
        done = await asyncio.to_thread(CliRunner().invoke, main, ["repair", str(tmp_path)])
        assert done.exit_code == 1
        assert "is in use by another server" in done.output
        await lock.close()

    asyncio.run(held())
    assert (tmp_path / LOCK_FILE).exists()
    assert list((tmp_path / "log").iterdir()) == []


def test_repair_of_no_data_directory_fails(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["repair", str(tmp_path)])
    assert done.exit_code == 1
    assert "is no data directory" in done.output
    assert list(tmp_path.iterdir()) == []
