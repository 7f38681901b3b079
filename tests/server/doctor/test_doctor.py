"""`foreshore doctor` names what is wrong, and changes nothing."""

import fcntl
import json
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from foreshore.processes.owner import LOCK_FILE, Holder
from foreshore.server.doctor import data, live, machine
from foreshore.server.doctor.below import Below
from foreshore.server.doctor.command import look
from foreshore.server.doctor.finding import Finding, as_text, found
from foreshore.server.main import _contents, main
from tests.harness import Server, free_port

BELOW = Below(_contents, lambda: "Java 17", lambda: 8 << 30)


def state(findings: list[Finding], name: str) -> tuple[str, str]:
    """Return state and message of the only finding with a name."""
    (one,) = (each for each in findings if each.name == name)
    assert (one.advice is None) == (one.state == "ok")
    return one.state, one.message


def test_all_is_well_before_the_first_start(tmp_path: Path) -> None:
    place = tmp_path / "data"
    pg, http = (f"127.0.0.1:{free_port()}" for _ in range(2))
    findings = look(BELOW, place, pg, http, None, None, known=set(os.environ))
    assert {
        each.state for each in findings if each.name not in ("java", "disk space", "fsync")
    } == {"ok"}
    assert list(tmp_path.iterdir()) == []


def test_exit_status_and_json_tell_failures(tmp_path: Path) -> None:
    (tmp_path / "pg_hba.conf").touch(0o600)
    (tmp_path / "pg_hba.conf").write_text("host all all nonsense trust\n")
    arguments = ["doctor", "--data-dir", str(tmp_path), "--pg-listen", "127.0.0.1:0"]
    ran = CliRunner().invoke(main, [*arguments, "--http-listen", "127.0.0.1:0", "--json"])
    assert ran.exit_code == 1
    failed = [each for each in json.loads(ran.output) if each["state"] == "fail"]
    assert [each["name"] for each in failed] == ["pg_hba.conf"]
    assert "docs/security.md" in failed[0]["advice"]


def test_file_in_place_of_the_directory_fails(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert state(list(data.directory(tmp_path / "data")), "data directory")[0] == "fail"


@pytest.mark.parametrize("mode", [0o701, 0o750, 0o777])
def test_directory_that_others_may_use_fails(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    assert state(list(data.directory(tmp_path)), "data directory")[0] == "fail"
    is_for_group = state(list(data.directory(tmp_path, group=True)), "data directory")[0] == "ok"
    assert is_for_group == (mode == 0o750)


def test_file_that_others_may_read_fails(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir(mode=0o700)
    (tmp_path / "log" / "segment").touch(0o640)
    told = state(list(data.directory(tmp_path)), "data directory")
    assert told == ("fail", f'others can use "{tmp_path}/log/segment"')


def test_directory_of_another_user_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    told = state(list(data.directory(tmp_path)), "data directory")
    assert told == ("fail", f"it belongs to user {owner}")


def test_key_that_others_may_read_is_a_warning(tmp_path: Path) -> None:
    key = data.key_of(tmp_path)
    key.write_text("x")
    key.chmod(0o644)
    assert state(list(data.secrets(key)), "key of secrets")[0] == "warn"
    key.chmod(0o600)
    assert state(list(data.secrets(key)), "key of secrets")[0] == "ok"


def test_clock_behind_the_data_fails(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    segment = tmp_path / "log" / "1"
    segment.write_text("")
    ahead = time.time() + 3600
    os.utime(segment, (ahead, ahead))
    assert state(list(data.clock(tmp_path)), "clock")[0] == "fail"


def test_port_of_another_program_fails(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = other.getsockname()
        name = f"port {address[1]}"
        taken = list(live.port("--pg-listen", address, is_served=False))
        assert state(taken, name)[0] == "fail"
        served = list(live.port("--pg-listen", address, is_served=True))
        assert state(served, name)[0] == "ok"


def test_holder_of_the_lock_is_named_while_it_lives(tmp_path: Path) -> None:
    file = tmp_path / LOCK_FILE
    file.write_bytes(msgspec.json.encode(Holder(4711, "db1", datetime.now(UTC))))
    assert data.holder(tmp_path) is None
    with file.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert "process 4711 on host db1" in state(list(data.lock(tmp_path)), "server lock")[1]


def test_misspelled_variable_is_a_warning() -> None:
    given = {"FORESHORE_DATADIR": "x", "FORESHORE_DATA_DIR": "y", "HOME": "z"}
    told = state(list(machine.environment({"FORESHORE_DATA_DIR"}, given)), "environment")
    assert told == ("warn", "unknown: FORESHORE_DATADIR")


@pytest.mark.parametrize(
    ("there", "how", "bound", "fits"),
    [
        ("2.0.1", ">=", "2.0", True),
        ("1.9.9", ">=", "2.0", False),
        ("2.9", "<", "3", True),
        ("3.0.0", "<", "3", False),
        ("2025.11.3", ">=", "2024.5", True),
    ],
)
def test_versions_are_compared_by_numbers(there: str, how: str, bound: str, fits: bool) -> None:
    assert machine._fits(there, how, bound) == fits


def test_check_that_fails_itself_is_a_warning_and_others_go_on() -> None:
    def broken() -> list[Finding]:
        raise PermissionError("not yours")

    findings = found([("disk", broken), ("python", machine.python)])
    assert state(findings, "disk") == ("warn", "could not be looked at: not yours")
    assert state(findings, "python")[0] == "ok"
    assert as_text(findings)[0].startswith("warn  disk: ")


def test_stalled_sinks_are_a_warning() -> None:
    lines = (
        'foreshore_sink_state{id="u1",sink="d.s.\\"odd, } 1.0\\"",state="stalled",type="kafka"} 1.0',
        'foreshore_sink_state{id="u2",sink="d.s.k",state="running",type="postgres"} 1.0',
        'foreshore_source_state{id="u3",source="d.s.s",state="finished",type="files"} 1.0',
    )
    findings = list(live._outside("\n".join(lines)))
    assert state(findings, "sinks") == ("warn", '1 of 2 stalled: d.s."odd, } 1.0"')
    assert state(findings, "sources") == ("ok", "1, none stalled")


def test_a_replication_slot_that_is_nearly_lost_is_a_warning() -> None:
    slot = 'foreshore_source_slot_{}_bytes{{id="u1",source="d.s.{}",type="postgres"}} {}'
    lines = (
        *(slot.format("retained", "a", 9e8), slot.format("safe", "a", 1e8)),
        *(slot.format("retained", "b", 9e8), slot.format("safe", "b", 1e9)),
        slot.format("retained", "c", 9e12),
    )
    findings = list(live._slots("\n".join(lines)))
    assert state(findings, "replication slots") == ("warn", "1 of 3 are nearly lost: d.s.a")
    assert list(live._slots("\n".join(lines[2:]))) == []


def test_dead_letters_of_sources_are_a_warning() -> None:
    letters = 'foreshore_source_dead_letters{{id="u1",source="d.s.{}",type="files"}} {}'
    lines = (letters.format("a", "2.0"), letters.format("b", "0.0"), letters.format("c", "31.0"))
    found = list(live._dead_letters("\n".join(lines)))
    said = "2 of 3 sources have some: d.s.c (31), d.s.a (2)"
    assert state(found, "dead letters") == ("warn", said)
    assert list(live._dead_letters(lines[1])) == []


def test_views_that_cannot_be_read_for_their_data_are_a_warning() -> None:
    lines = (
        'foreshore_view_errors{id="u1",view="d.s.good",type="index",cluster="q"} 0.0',
        'foreshore_view_errors{id="u2",view="d.s.bad",type="index",cluster="q"} 1.0',
        'foreshore_view_errors{id="u3",view="d.s.m",type="materialized view",cluster="q"} 1.0',
        'foreshore_views{state="failing"} 2.0',
    )
    found = state(list(live._failing("\n".join(lines))), "data of views")
    assert found == ("warn", "reads of 2 fail for their data: d.s.m, index d.s.bad")
    many = "\n".join(lines).replace('"failing"} 2', '"failing"} 7')  # some without series
    found = state(list(live._failing(many)), "data of views")
    assert found == ("warn", "reads of 7 fail for their data: d.s.m, index d.s.bad, and 5 more")
    assert not list(live._failing(lines[0] + '\nforeshore_views{state="failing"} 0.0'))
    assert list(live._failing(lines[0])) == []


def test_what_is_not_kept_up_to_date_or_away_is_a_warning() -> None:
    lines = (
        'foreshore_view_failed{id="u1",view="d.s.large",type="index",cluster="q"} 1.0',
        'foreshore_replica_up{cluster="q",replica="r1",size="embedded"} 0.0',
        'foreshore_replica_up{cluster="q",replica="r2",size="embedded"} 1.0',
        'foreshore_metric_up{metric="d.s.m"} 0.0',
    )
    findings = list(live._down("\n".join(lines)))
    assert state(findings, "upkeep of views") == ("warn", "1 not kept up to date: d.s.large")
    assert state(findings, "replicas") == ("warn", "1 away: r1")
    assert state(findings, "metrics of views") == ("warn", "1 not shown at /metrics: d.s.m")


@pytest.mark.full
def test_running_server_and_damaged_data(tmp_path: Path) -> None:
    server = Server(tmp_path / "data").start()
    listen = (f"127.0.0.1:{server.port}", f"127.0.0.1:{server.http_port}")
    findings = look(BELOW, server.data_dir, *listen, None, None)
    assert not [each for each in findings if each.state == "fail"]
    assert state(findings, "server")[0] in ("ok", "warn")
    assert state(findings, "state of the server") == ("ok", "consistent")
    with server.connect() as connection:
        connection.execute("CREATE SOURCE ticks FROM LOAD GENERATOR COUNTER")
    told = state(list(live.server(("127.0.0.1", server.http_port))), "sources")
    assert told == ("ok", "1, none stalled")
    assert (
        f"process {server.process.pid if server.process else 0}"
        in state(findings, "server lock")[1]
    )
    assert (
        state(look(BELOW, server.data_dir, "127.0.0.1:0", "127.0.0.1:1", None, None), "server")[0]
        == "fail"
    )
    assert server.stop() == 0
    (segment, *_) = sorted(
        each for each in (server.data_dir / "log").glob("*.log") if each.stat().st_size > 64
    )
    content = bytearray(segment.read_bytes())
    content[len(content) // 3] ^= 0xFF
    segment.write_bytes(content)
    damaged = state(look(BELOW, server.data_dir, *listen, None, None), "data")
    assert damaged[0] == "fail"
    assert segment.name in damaged[1]
