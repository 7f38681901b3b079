"""--config: a TOML file gives options that neither the command line nor the environment does."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from foreshore.server.config_file import config_option
from foreshore.server.options import flags, serve_options


def ran(
    tmp_path: Path, text: str, *arguments: str, **environment: str
) -> tuple[Result, dict[str, object]]:
    """Run a command with the options of `serve` and a file; return how it ended and the options."""
    found: dict[str, object] = {}

    @click.command()
    @serve_options
    @flags
    def serve(**given: object) -> None:
        found.update(given)

    file = tmp_path / "foreshore.toml"
    file.write_text(text)
    return CliRunner().invoke(serve, ["--config", str(file), *arguments], env=environment), found


def test_file_is_after_command_line_and_environment(tmp_path: Path) -> None:
    text = (
        'data-dir = "/srv/foreshore"\npg-listen = "0.0.0.0:1"\nhttp_listen = "0.0.0.0:2"\n'
        'copy-dir = ["/a", "/b"]\nmax-connections = 7\nhttp-tls = true\nlog-format = "json"\n'
    )
    result, found = ran(tmp_path, text, "--pg-listen", "[::1]:3", FORESHORE_LOG_FORMAT="text")
    assert result.exit_code == 0, result.output
    assert found["data_dir"] == Path("/srv/foreshore")
    assert (found["pg_listen"], found["http_listen"]) == ("[::1]:3", "0.0.0.0:2")
    assert (found["copy_dir"], found["max_connections"]) == (("/a", "/b"), 7)
    assert (found["http_tls"], found["log_format"]) == (True, "text")
    assert found["checkpoint_interval"] == 60


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('pg-lisen = "x"', 'there is no option "pg-lisen". Is "pg-listen" meant?'),
        ('copy-dir = "/a"', 'the option "copy-dir" needs an array of strings.'),
        ('http-tls = "yes"', 'the option "http-tls" needs true or false.'),
        ("pg-listen = true", 'the option "pg-listen" needs a string or a number.'),
        ("max-connections = 0", "--max-connections"),
        ("pg-listen = ", "foreshore.toml: Invalid value"),
    ],
)
def test_wrong_file_ends_the_command_with_status_2(tmp_path: Path, text: str, told: str) -> None:
    result, found = ran(tmp_path, text)
    assert (result.exit_code, found) == (2, {})
    assert told in result.output


def test_command_with_fewer_options_reads_the_file_of_serve(tmp_path: Path) -> None:
    found: list[str] = []

    @click.group()
    def main() -> None:
        pass

    @main.command("serve")
    @serve_options
    def serve(**given: object) -> None:
        pass

    @main.command("doctor")
    @config_option
    @click.option("--data-dir")
    def doctor(data_dir: str) -> None:
        found.append(data_dir)

    file = tmp_path / "foreshore.toml"
    file.write_text('data-dir = "/srv"\nmax-connections = 7\n')
    result = CliRunner().invoke(main, ["doctor"], env={"FORESHORE_CONFIG": str(file)})
    assert (result.exit_code, found) == (0, ["/srv"]), result.output
