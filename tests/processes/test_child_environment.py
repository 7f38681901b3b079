"""Child processes get what they need of the environment, and no identity of the operator."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from foreshore.garbage import collection_paused
from foreshore.processes import child_environment as module
from foreshore.processes.child_environment import (
    AWS,
    BASE,
    COMPUTE,
    NETWORK,
    PASSED_VARIABLE,
    Names,
    child_environment,
    private_home,
    remove_private_home,
)
from foreshore.processes.child_process import ProcessLauncher

ROOT = Path(__file__).parents[2]
LAYERS = ("foreshore", "server", "adapter", "catalog", "sql", "compute", "storage")
STARTS = {
    *("Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"),
    *("create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell"),
    *("posix_spawn", "posix_spawnp", "system", "popen", "fork", "forkpty", "start_tied"),
    *("execv", "execve", "execvp", "execvpe", "execl", "execle", "execlp", "execlpe"),
    *("spawnv", "spawnve", "spawnl", "spawnle", "spawnvp", "spawnlp"),
}
OWNERS = {"subprocess", "os", "asyncio"}
# What starts a process otherwise, and why it may.
EXCEPTIONS = {
    "foreshore/processes/tied_process.py": "passes the environment on that its caller gives",
    "foreshore/embedded/server_process.py": "starts the server, for the program's user",
    "server/start.py": "begins again as itself, for the user of the command",
    "server/demo/run.py": "starts the server, for the user of the command",
    "compute/flow/ship.py": "builds the package, before there is a server",
    "compute/spark/standalone.py": "becomes another program, with `child_environment`",
}
SECRETS = {
    name: "planted"
    for name in (
        *("PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE", "PGHOST", "PGSSLKEY"),
        *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_CONFIG_FILE"),
        *("FORESHORE_PASSWORD", "FORESHORE_REPLICA_SECRET", "FORESHORE_CONSENSUS"),
        *("SSH_AUTH_SOCK", "KRB5CCNAME", "KAFKA_OPTS", "PYICEBERG_CATALOG__X__TOKEN"),
        *("GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_SECRET", "GITHUB_TOKEN", "VAULT_TOKEN"),
    )
}


@pytest.fixture(autouse=True)
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Secrets in the environment and in the home directory."""
    home = tmp_path / "home"
    for name in (".pgpass", ".aws/credentials", ".ssh/id_ed25519", ".kafka/client.properties"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("planted")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    yield
    remove_private_home()


@pytest.mark.parametrize("names", [(), (COMPUTE,), (NETWORK,), (COMPUTE, NETWORK)])
def test_child_gets_no_secret_and_an_empty_home(tmp_path: Path, names: tuple[Names, ...]) -> None:
    environment = child_environment(tmp_path / "private", *names, GIVEN="1")
    assert not SECRETS.keys() & environment.keys()
    assert "planted" not in environment.values()
    assert environment["GIVEN"] == "1"
    assert environment["PATH"] == os.environ["PATH"]
    assert environment["HOME"] == str(tmp_path / "private")
    assert list((tmp_path / "private").iterdir()) == []
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o500


def test_no_group_of_names_has_a_secret() -> None:
    for names in (BASE, COMPUTE, NETWORK):
        assert not SECRETS.keys() & module._passed(dict(SECRETS), (names,)).keys()
    assert "XDG_CACHE_HOME" in child_environment(private_home(), COMPUTE)


def test_processes_for_the_operators_buckets_have_the_identity_at_aws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_CONFIG_FILE")
    environment = child_environment(private_home(), NETWORK, AWS)
    assert environment["AWS_SECRET_ACCESS_KEY"] == "planted"
    credentials = Path(environment["AWS_SHARED_CREDENTIALS_FILE"])
    assert credentials == Path(os.environ["HOME"]) / ".aws" / "credentials"
    assert "PGPASSWORD" not in environment


def test_operator_passes_further_variables_but_not_to_code_of_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PASSED_VARIABLE, "VAULT_TOKEN GITHUB_TOKEN")
    for names in (COMPUTE, NETWORK):
        found = child_environment(private_home(), names)
        assert {"VAULT_TOKEN", "GITHUB_TOKEN"} == found.keys() & SECRETS.keys()
    assert not child_environment(private_home()).keys() & SECRETS.keys()


def test_home_of_children_of_children_stays_private(monkeypatch: pytest.MonkeyPatch) -> None:
    home = private_home()
    assert home == private_home() != Path(os.environ["HOME"])
    for name, value in child_environment(home).items():
        monkeypatch.setenv(name, value)
    assert private_home() == home
    monkeypatch.undo()
    remove_private_home()
    assert not home.parent.exists()


def starts_of(tree: ast.Module) -> Iterator[ast.Call]:
    """Yield the calls that start a process, or refer to what may."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=name, value=ast.Name(id=owner))):
                is_loop = owner == "asyncio" and name == "run"
                if name in STARTS and owner in OWNERS and not is_loop:
                    yield node
            case ast.Call(func=ast.Name(id=name)):
                if name in STARTS - {"run", "call", "system", "fork"}:
                    yield node


def has_child_environment(call: ast.Call, tree: ast.Module) -> bool:
    """Whether the argument `env` is what `child_environment` returns."""

    def is_made(node: ast.expr) -> bool:
        match node:
            case ast.Call(func=ast.Name(id="child_environment")):
                return True
            case ast.Dict(keys=[]):  # nothing at all
                return True
            case ast.Name(id=name):
                values = [
                    each.value
                    for each in ast.walk(tree)
                    if isinstance(each, ast.Assign)
                    and any(isinstance(t, ast.Name) and t.id == name for t in each.targets)
                ]
                return bool(values) and all(map(is_made, values))
        return False

    return any(each.arg == "env" and is_made(each.value) for each in call.keywords)


def test_nothing_starts_processes_with_another_environment() -> None:
    found = set()
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            text = path.read_text()
            assert "multiprocessing" not in text.replace("#", ""), name
            assert "ProcessPoolExecutor" not in text, name
            if not any(each in text for each in STARTS):
                continue
            with collection_paused():
                tree = ast.parse(text)
            wrong = [c.lineno for c in starts_of(tree) if not has_child_environment(c, tree)]
            if wrong and name in EXCEPTIONS:
                found.add(name)
            else:
                assert not wrong, f"{name}, lines {wrong}: give it child_environment(...)"
    assert found == EXCEPTIONS.keys()


PROGRAM = """
import json, os, sys
place = sys.argv[sys.argv.index("--listen") + 1].removeprefix("unix:")
files = [name for _, _, names in os.walk(os.environ["HOME"]) for name in names]
with open(os.path.join(os.path.dirname(place), "said"), "w") as file:
    json.dump([dict(os.environ), files], file)
"""


async def said_by(launcher: ProcessLauncher, place: list[Path]) -> None:
    async with launcher.start() as started:
        await started.exited.wait()
        said = Path(started.path).parent / "said"  # type: ignore[attr-defined]
        place.append(Path(said.read_text()))


def test_launched_process_sees_no_secret(tmp_path: Path) -> None:
    import asyncio

    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    told: list[Path] = []
    asyncio.run(said_by(ProcessLauncher((sys.executable, str(script))), told))
    environment, files = json.loads(str(told[0]))
    assert files == []
    assert not (SECRETS.keys() - {"FORESHORE_REPLICA_SECRET"}) & environment.keys()
    assert "planted" not in environment.values()
    assert Path(environment["HOME"]).parent == Path(environment["FORESHORE_REPLICA_SCRATCH"])


def test_program_of_a_child_runs_with_what_it_gets() -> None:
    command = [sys.executable, "-P", "-c", "import foreshore.storage.ingest.main, os; print(1)"]
    environment = child_environment(private_home(), NETWORK)
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout == "1\n", ran.stderr
