"""The command line, as a process."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import click
import psycopg
import pytest

from foreshore.errors import ConfigurationFileError
from foreshore.server.admission.policy import Policy, Sources
from foreshore.server.configuration import Configuration
from foreshore.server.key_file import load_key
from foreshore.server.options import address, spark_properties
from tests.harness import until
from tests.server.certificates import Authority
from tests.stopped_process import stop_process


def test_address_is_split_into_host_and_port() -> None:
    assert address("127.0.0.1:6875") == ("127.0.0.1", 6875)
    assert address("[::1]:0") == ("::1", 0)
    for wrong in ("6875", "host:", "host:99999", "host:x"):
        with pytest.raises(click.BadParameter):
            address(wrong)


def test_properties_of_spark_are_split_at_their_first_equals_sign() -> None:
    assert spark_properties(["spark.a=b=c", "spark.d="]) == {"spark.a": "b=c", "spark.d": ""}
    for wrong in ("spark.a", "a=b", ""):
        with pytest.raises(click.BadParameter):
            spark_properties([wrong])


def serve(
    data_dir: Path, *args: str, stdin: int | None = None, **environment: str
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "foreshore.server.main", "serve", *args],
        stdin=stdin,
        env=os.environ
        | {
            "FORESHORE_DATA_DIR": str(data_dir),
            "FORESHORE_PG_LISTEN": "127.0.0.1:0",
            "FORESHORE_HTTP_LISTEN": "127.0.0.1:0",
        }
        | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_server_prints_ready_line_and_ends_at_sigterm(tmp_path: Path) -> None:
    for expected in (0, 1):  # a second time, over what the first one left
        process = serve(tmp_path / "data")
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("foreshore ready: postgres://foreshore@127.0.0.1:")
        console = process.stdout.readline()
        assert console.startswith("console: http://127.0.0.1:")
        with urllib.request.urlopen(console.split()[-1], timeout=30) as page:
            assert b"Foreshore" in page.read()
        with psycopg.connect(line.split()[-1], autocommit=True) as connection:
            if not expected:
                connection.execute("CREATE TABLE t (a int)")
                connection.execute("INSERT INTO t VALUES (1)")
            assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def test_server_is_configured_by_files_that_sighup_reloads(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("localhost", "server")
    tls = ("--tls-cert", str(issued.certificate), "--tls-key", str(issued.key))
    rules = tmp_path / "data" / "pg_hba.conf"
    password = "correct horse"
    process = serve(tmp_path / "data", *tls, FORESHORE_PASSWORD=password)
    assert process.stdout is not None
    url = process.stdout.readline().split()[-1] + "?sslmode=require"
    assert not connects(url)  # the loopback needs the password, too
    with psycopg.connect(url, password=password):
        pass
    rules.write_text("hostssl all all all trust\n")
    process.send_signal(signal.SIGHUP)
    until(lambda: connects(url), "the rules of the file are in force")
    rules.write_text("hostssl all all all scram-sha-256\n")
    process.send_signal(signal.SIGHUP)
    until(lambda: not connects(url), "the rules of the file are in force")
    with psycopg.connect(url, password=password, channel_binding="require") as connection:
        roles = connection.execute("SELECT * FROM pg_authid").fetchall()
        assert password not in str(roles)
        seen = "SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        assert connection.execute(seen).fetchall() == [(True, "TLSv1.3")]
        rules.write_text("hostssl all all all scram-sha-256\nnonsense\n")
        assert connection.execute("SELECT pg_reload_conf()").fetchall() == [(False,)]
        shown = "SELECT line_number, type, user_name, auth_method, error FROM pg_hba_file_rules"
        assert connection.execute(shown).fetchall() == [
            (1, "hostssl", ["all"], "scram-sha-256", None),
            (2, None, None, None, 'invalid connection type "nonsense"'),
        ]
        rules.write_text("hostssl all all all scram-sha-256\n")
        assert connection.execute("SELECT pg_reload_conf()").fetchall() == [(True,)]
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    again = serve(tmp_path / "data", *tls)
    assert again.stdout is not None
    url = again.stdout.readline().split()[-1] + "?sslmode=require"
    assert not connects(url)
    with psycopg.connect(url, password=password):  # it is durable
        pass
    again.send_signal(signal.SIGTERM)
    assert again.wait(30) == 0
    assert password not in again.stderr.read() + process.stderr.read()  # type: ignore[union-attr]


def connects(url: str) -> bool:
    """Return whether a client without a password can connect."""
    try:
        psycopg.connect(url, password="").close()
    except psycopg.OperationalError:
        return False
    return True


def test_listening_to_others_needs_somebody_who_can_authenticate(tmp_path: Path) -> None:
    class Port:
        def __init__(self, host: str) -> None:
            self.host = host

        def getsockname(self) -> tuple[str, int]:
            return self.host, 6875

    def check(host: str, *, has_passwords: bool, trust_all: bool = False) -> None:
        policy = Policy(Sources(directory=tmp_path, trust_all=trust_all))
        Configuration(None, policy).check_safe([Port(host)], has_passwords=has_passwords)  # type: ignore[list-item]

    for host in ("0.0.0.0", "192.0.2.1", "::", "fe80::1%eth0"):
        with pytest.raises(ConfigurationFileError, match="nobody could authenticate"):
            check(host, has_passwords=False)
        check(host, has_passwords=True)
        check(host, has_passwords=False, trust_all=True)
    for host in ("127.0.0.1", "::1"):
        check(host, has_passwords=False)
    (tmp_path / "pg_hba.conf").write_text("host all all all scram-sha-256")
    check("0.0.0.0", has_passwords=False)
    with pytest.raises(ConfigurationFileError, match="--insecure-no-auth would have no effect"):
        check("0.0.0.0", has_passwords=False, trust_all=True)


def test_key_file_is_made_once_and_kept_private(tmp_path: Path) -> None:
    file = tmp_path / "secrets.key"
    key = load_key(file)
    assert len(key) == 32
    assert file.stat().st_mode & 0o777 == 0o600
    assert load_key(file) == key
    assert [each.name for each in tmp_path.iterdir()] == ["secrets.key"]
    file.chmod(0o640)
    with pytest.raises(ConfigurationFileError, match="has group or world access"):
        load_key(file)
    file.chmod(0o600)
    file.write_text("short")
    with pytest.raises(ConfigurationFileError, match="is not 64 hexadecimal digits"):
        load_key(file)


def test_sigterm_during_take_over_ends_the_new_server(tmp_path: Path) -> None:
    before = serve(tmp_path / "data")
    assert before.stdout is not None
    assert before.stdout.readline()
    stop_process(before.pid)
    try:
        process = serve(tmp_path / "data", FORESHORE_TAKE_OVER="1")
        assert process.stderr is not None
        assert process.stdout is not None
        assert any("the data is taken over" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()  # to its end
        assert process.wait(30) == 0
        assert "the other server does not end" not in said
        assert process.stdout.read() == "", "it has never answered"
    finally:
        before.kill()
        before.wait()


FAILING = """
import errno, os, sys
from foreshore.server import main

async def failing(options):
    raise OSError(errno.EBADF, os.strerror(errno.EBADF), *sys.argv[1:])

main.serve = failing
main.main(["serve"])
"""


@pytest.mark.parametrize("names", [(), ("data/log",)])
def test_error_without_file_name_logs_its_traceback(names: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", FAILING, *names]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "CRITICAL foreshore.server.main: [Errno 9] Bad file descriptor" in ended.stderr
    assert ("in failing" in ended.stderr) == (not names)


@pytest.mark.parametrize("which", ["pg", "http"])
def test_port_in_use_ends_start_with_one_line(tmp_path: Path, which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        process = serve(tmp_path / "data", f"--{which}-listen", place)
        assert process.wait(30) == 1
        assert not (tmp_path / "data").exists()  # whose data it is has not been touched
        assert process.stderr is not None
        (line,) = process.stderr.read().splitlines()
        _, _, said = line.partition(" CRITICAL __main__: ")
        assert said == (
            f'could not bind address "{place}": Address already in use; '
            f"Is another server running there? End it, or choose another address by --{which}-listen."
        )


def test_server_with_lifeline_ends_at_end_of_standard_input(tmp_path: Path) -> None:
    process = serve(tmp_path / "data", "--lifeline", stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    url = process.stdout.readline().split()[-1]
    process.stdin.write("what is said on it is no matter")
    process.stdin.flush()
    psycopg.connect(url).close()
    process.stdin.close()
    assert process.wait(30) == 0


def test_server_without_lifeline_needs_no_standard_input(tmp_path: Path) -> None:
    process = serve(tmp_path / "data", stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    psycopg.connect(process.stdout.readline().split()[-1]).close()
    process.terminate()
    assert process.wait(30) == 0
