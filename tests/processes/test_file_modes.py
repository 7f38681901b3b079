"""Nobody else reads what a command has made, whatever the umask; users' files have the operator's."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.processes import file_modes
from foreshore.spark import lease
from foreshore.storage.backup import back_up, restore
from tests.harness import Server
from tests.storage.harness import ROWS, U1, open_at, put, run, write

UMASKS = (0o000, 0o022, 0o077)


def open_paths(*places: Path) -> list[str]:
    """Return what `find -perm /077` finds."""
    return [
        str(path)
        for place in places
        for path in (place, *place.rglob("*"))
        if path.lstat().st_mode & 0o077
    ]


@pytest.fixture(params=UMASKS, ids="{:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def opened(directory: Path) -> Path:
    """Make a directory with all kinds of files that every user can read, and return it."""
    (directory / "log").mkdir(parents=True, mode=0o777)
    for name in ("secrets.key", "log/segment", "log/run.sh"):
        (directory / name).write_text("x")
        (directory / name).chmod(0o777 if name.endswith(".sh") else 0o666)
    (directory / "log").chmod(0o777)
    directory.chmod(0o755)
    return directory


def test_open_directory_is_repaired_once_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place, outside = opened(tmp_path / "data"), tmp_path / "outside"
    outside.touch(0o644)
    outside.chmod(0o644)
    (place / "link").symlink_to(outside)
    file_modes.secure(place)
    (place / "link").unlink()
    assert not open_paths(place)
    assert (place / "log/run.sh").stat().st_mode & 0o777 == 0o700
    assert outside.stat().st_mode & 0o777 == 0o644
    (record,) = caplog.records
    assert record.getMessage().endswith("was open to other users, 5 modes changed")
    file_modes.secure(place)
    assert len(caplog.records) == 1


def test_group_may_read_all_but_keys(tmp_path: Path) -> None:
    place = opened(tmp_path / "data")
    file_modes.secure(place, group=True)
    modes = {
        path.relative_to(tmp_path).as_posix(): path.stat().st_mode & 0o777
        for path in (place, *place.rglob("*"))
    }
    assert modes == {
        "data": 0o750,
        "data/log": 0o750,
        "data/log/segment": 0o640,
        "data/log/run.sh": 0o750,
        "data/secrets.key": 0o600,
    }
    assert file_modes.is_for_group(place)
    file_modes.secure(place)
    assert not open_paths(place)


def test_new_directory_leaves_what_others_have_inside(tmp_path: Path) -> None:
    place = opened(tmp_path / "data")
    (place / "script.sh").touch()
    (place / "script.sh").chmod(0o755)
    file_modes.secure_new(place, "secrets.key")
    modes = {
        path.relative_to(tmp_path).as_posix(): path.stat().st_mode & 0o777
        for path in (place, *place.rglob("*"))
    }
    assert modes == {
        "data": 0o700,
        "data/secrets.key": 0o600,
        "data/script.sh": 0o755,
        "data/log": 0o777,
        "data/log/segment": 0o666,
        "data/log/run.sh": 0o777,
    }


def test_file_that_goes_away_is_not_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of a running server is looked at by its doctor."""
    place, walk = opened(tmp_path / "data"), os.walk
    file_modes.secure(place)

    def walk_late(directory: Path) -> Iterator[tuple[str, list[str], list[str]]]:
        for folder, folders, files in walk(directory):
            yield folder, [*folders, "gone"], [*files, "gone too"]

    monkeypatch.setattr(os, "walk", walk_late)
    assert file_modes.open_to_others(place) is None
    (place / "log/segment").chmod(0o644)
    assert file_modes.open_to_others(place) == place / "log/segment"


def test_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    before = tmp_path.stat().st_mode
    with pytest.raises(ObjectNotInPrerequisiteState) as raised:
        file_modes.secure(tmp_path)
    assert raised.value.message == f'data directory "{tmp_path}" has wrong ownership'
    assert (
        raised.value.hint == "The program must be started by the user that owns the data directory."
    )
    assert tmp_path.stat().st_mode == before


def test_data_backup_and_copy_are_private(tmp_path: Path, umask: int) -> None:
    data, place, copy = tmp_path / "data", tmp_path / "backup", tmp_path / "copy"
    place.mkdir()
    file_modes.keep_private()

    async def work() -> None:
        controller = await open_at(data)
        await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 10, ((1, "one"), 5, 1)))
        await controller.settle()
        await controller.close()

    run(work)
    assert not open_paths(data)
    for name in ("first", "second"):
        back_up(data, place)
        restore(place, copy)
        assert not open_paths(data, place, copy)
        for path in (place, *place.rglob("*")):  # as an earlier version has left it
            path.chmod(path.stat().st_mode | 0o044)
        copy.rename(tmp_path / name)
    leases = data / "leases"
    leases.mkdir(exist_ok=True)
    os.umask(umask)  # another program reads the files
    taken = lease.take(data, 1000)
    assert taken is not None
    assert not open_paths(leases)


def test_files_for_users_have_the_operators_umask(tmp_path: Path, umask: int) -> None:
    file_modes.keep_private()
    asked = tmp_path / "new" / "inner"
    file_modes.make_shared(asked)
    (asked / "part").touch()
    assert (asked / "part").stat().st_mode & 0o077 == 0
    file_modes.share_below(asked)
    (asked / "more").touch()
    (asked / "kept").touch(0o644)
    (asked / "kept").chmod(0o640)
    file_modes.share_new(asked)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")} == {
        "new": 0o777 & ~umask,
        "inner": 0o777 & ~umask,
        "part": 0o666 & ~umask,
        "more": 0o666 & ~umask,
        "kept": 0o640,
    }


COPIES = ("rows.csv", "rows.parquet", "csvs", "parquets", "delta", "iceberg")


@pytest.mark.full
@pytest.mark.parametrize("umask", [0o000], indirect=True)
def test_all_commands_keep_data_private(tmp_path: Path, umask: int) -> None:
    data, place, copy, out = (tmp_path / name for name in ("data", "backup", "copy", "out"))
    out.mkdir(mode=0o755)
    arguments = ("--copy-dir", str(out), "--python-functions", "--checkpoint-size", "0")
    server = Server(data, arguments).start()
    with server.connect() as connection:
        for sql in STATEMENTS:
            connection.execute(sql.format(out=out).encode())
        for name in COPIES:
            format = name.removesuffix("s").rpartition(".")[2]
            for _ in range(2 if format in ("delta", "iceberg") else 1):
                query = f"COPY t TO 'file://{out}/{name}' (FORMAT {format})"
                connection.execute(query.encode())
        connection.execute("WAIT FOR SINKS files, lake")
        assert not open_paths(data)
        foreshore("backup", "--from", server.url, str(place))
        assert connection.execute("SELECT twice(n) FROM sums").fetchone() == (20,)
    assert not open_paths(data, place)
    assert server.stop() == 0
    foreshore("restore", str(place), str(copy))
    foreshore("inspect", str(data), "--verify")
    assert not open_paths(data, place, copy)
    made = {path: path.stat().st_mode & 0o777 for path in out.rglob("*")}
    assert made
    for path, mode in made.items():
        assert mode == (0o777 if path.is_dir() else 0o666) & ~umask, path
    for path in (data, *data.rglob("*")):
        path.chmod(path.stat().st_mode | 0o044)
    server.start()
    assert not open_paths(data)
    assert b"was open to other users" in server.log.read_bytes()
    assert server.stop() == 0


@pytest.mark.full
def test_group_option_lets_the_group_read(tmp_path: Path) -> None:
    data, place, copy = (tmp_path / name for name in ("data", "backup", "copy"))
    server = Server(data, ("--allow-group-access",)).start()
    with server.connect() as connection:
        connection.execute("CREATE TABLE t (i int)")
    foreshore("backup", "--from", server.url, str(place))
    assert server.stop() == 0
    foreshore("restore", str(place), str(copy))
    for directory in (data, place, copy):
        assert file_modes.is_for_group(directory)
        for path in directory.rglob("*"):
            assert not path.stat().st_mode & 0o027, path
    assert (data / "secrets.key").stat().st_mode & 0o777 == 0o600
    assert (data / "consensus.sqlite").stat().st_mode & 0o777 == 0o640


STATEMENTS = (
    "CREATE TABLE t (i int)",
    "INSERT INTO t SELECT * FROM generate_series(1, 10)",
    "CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS n FROM t",
    "CREATE INDEX ON sums (n)",
    "CREATE FUNCTION twice(n bigint) RETURNS bigint LANGUAGE python AS $$\n"
    "def twice(n):\n    return 2 * n\n$$",
    "CREATE SOURCE ticks FROM LOAD GENERATOR COUNTER",
    "CREATE SINK files FROM sums INTO FILES (URL '{out}/sink', FORMAT csv)",
    "CREATE SINK lake FROM sums INTO DELTA (URL '{out}/log') ENVELOPE APPEND",
)


def foreshore(*arguments: str) -> None:
    """Run a command, which succeeds."""
    command = [sys.executable, "-m", "foreshore.server.main", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
