"""Each command that takes a data directory refuses that of another user, and changes nothing in it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from foreshore.processes import file_modes
from foreshore.server.doctor import data
from foreshore.server.main import main
from foreshore.storage.directory import read_states
from foreshore.storage.private_directory import prepare
from tests.adapter.harness import TestEnvironment, in_environment
from tests.kept_umask import kept_umask

# The arguments of each command that works on a data directory.
COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "backup": lambda place: ["--from", str(place), str(place.parent / "backup")],
    "inspect": lambda place: [str(place)],
    "repair": lambda place: [str(place)],
    "restore": lambda place: [str(place.parent / "backup"), str(place)],
}
STARTING = {"serve", "demo"}  # they prepare it
WITHOUT = {"replica", "dump"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data directory, beside which there is a backup of it."""
    place = tmp_path_factory.mktemp("of") / "data"
    place.mkdir(mode=0o700)

    async def fill(env: TestEnvironment) -> None:
        await env.ran("a", "CREATE TABLE t (x int)")

    in_environment(place, fill)
    with kept_umask():
        done = CliRunner().invoke(
            main, ["backup", "--from", str(place), str(place.parent / "backup")]
        )
    assert done.exit_code == 0, done.output
    return place


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test as a user that owns no file."""
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)


def _look(place: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for folder, folders, files in os.walk(place):
        for name in (".", *folders, *files):
            each = os.lstat(os.path.join(folder, name))
            found[os.path.join(folder, name)] = (each.st_mode, each.st_size, each.st_mtime_ns)
    return found


def test_each_command_is_listed() -> None:
    assert main.commands.keys() == COMMANDS.keys() | STARTING | WITHOUT | {"doctor"}


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize("command", COMMANDS)
def test_command_refuses_directory_of_another_user(made: Path, command: str) -> None:
    before = _look(made)
    done = CliRunner().invoke(main, [command, *COMMANDS[command](made)])
    assert done.exit_code == 1, done.output
    assert "has wrong ownership" in done.output
    assert _look(made) == before


@pytest.mark.usefixtures("stranger")
def test_doctor_reports_directory_of_another_user(made: Path) -> None:
    (found,) = data.directory(made)
    assert (found.state, "belongs to user" in found.message) == ("fail", True)


@pytest.mark.usefixtures("stranger")
def test_server_refuses_directory_of_another_user(made: Path) -> None:
    with pytest.raises(Exception, match="has wrong ownership"):
        prepare(made, (None, None), "secrets.key", group=False)


@pytest.mark.usefixtures("stranger")
def test_member_of_the_group_reads_what_is_for_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o750)
    file_modes.check_reader(tmp_path)
    group = tmp_path.stat().st_gid
    monkeypatch.setattr(os, "getegid", lambda: group + 1)
    monkeypatch.setattr(os, "getgroups", lambda: [group + 2])
    with pytest.raises(Exception, match="has wrong ownership"):
        file_modes.check_reader(tmp_path)


def test_owner_reads_states(made: Path) -> None:
    assert read_states(made).names()
