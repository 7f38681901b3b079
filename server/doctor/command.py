"""The command: which checks are made, in which order."""

import json
import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path

import click

from foreshore.server.config_file import config_option
from foreshore.server.doctor import data, live, machine
from foreshore.server.doctor.below import Below
from foreshore.server.doctor.finding import Check, Finding, as_json, as_text, found
from foreshore.server.options import address, option

_FILE = click.Path(path_type=Path, resolve_path=True, dir_okay=False)
_OTHERS = (  # what commands read that is no option
    "FORESHORE_PASSWORD",
    "FORESHORE_REPLICA_SECRET",
    "FORESHORE_SECOND_OPINION",
    "FORESHORE_UNCOMPILED",
)


def look(
    below: Below,
    data_dir: Path,
    pg_listen: str,
    http_listen: str,
    hba_file: Path | None,
    ident_file: Path | None,
    known: Collection[str] = (),
    *,
    group: bool = False,
) -> list[Finding]:
    """Return what is found; `known` are the environment's variables that have a meaning.

    `group` says that the group may read the data directory.
    """
    try:
        is_served = data.holder(data_dir) is not None
    except (OSError, ValueError):
        is_served = False  # the check of the lock says why
    ports = (("--pg-listen", address(pg_listen)), ("--http-listen", address(http_listen)))
    checks: list[tuple[str, Check]] = [
        ("python", machine.python),
        ("packages", machine.packages),
        ("java", partial(machine.spark, below)),
        ("memory", partial(machine.memory, below)),
        ("file descriptors", machine.descriptors),
        ("environment", partial(machine.environment, known)),
        ("data directory", partial(data.directory, data_dir, group=group)),
        ("disk space", partial(data.space, data_dir)),
        ("fsync", partial(data.syncs, data_dir)),
        ("clock", partial(data.clock, data_dir)),
        ("server lock", partial(data.lock, data_dir)),
        ("data", partial(data.contents, data_dir, below)),
        ("key of secrets", partial(data.secrets, data.key_of(data_dir))),
        ("pg_hba.conf", partial(data.rules, data_dir, hba_file, ident_file)),
        *(
            (f"port {each[1]}", partial(live.port, name, each, is_served=is_served))
            for name, each in ports
        ),
    ]
    if is_served:
        checks.append(("server", partial(live.server, address(http_listen))))
    return found(checks)


def doctor_command(below: Below) -> click.Command:
    """Return the command `doctor`."""

    @click.command("doctor")
    @config_option
    @option(
        "data-dir",
        type=click.Path(path_type=Path, resolve_path=True),
        default="data",
        help="The data directory.",
    )
    @option("pg-listen", default="127.0.0.1:6875", metavar="HOST:PORT", help="The server's SQL.")
    @option("http-listen", default="127.0.0.1:6876", metavar="HOST:PORT", help="Its for HTTP.")
    @option("hba-file", type=_FILE, help="Who may connect; default: DATA_DIR/pg_hba.conf.")
    @option("ident-file", type=_FILE, help="Whose certificates; default: DATA_DIR/pg_ident.conf.")
    @option("allow-group-access", is_flag=True, help="The group may read the data directory.")
    @click.option("--json", "json_", is_flag=True, help="Show JSON.")
    @click.pass_context
    def doctor(
        context: click.Context,
        /,
        data_dir: Path,
        pg_listen: str,
        http_listen: str,
        hba_file: Path | None,
        ident_file: Path | None,
        allow_group_access: bool,
        json_: bool,
    ) -> None:
        """Look for what is wrong: this machine, the data, and the server if it runs.

        It changes nothing. The exit status is 1 if something fails.
        """
        known = {*_OTHERS, *_variables(context)}
        findings = look(
            *(below, data_dir, pg_listen, http_listen, hba_file, ident_file, known),
            group=allow_group_access,
        )
        if json_:
            click.echo(json.dumps(as_json(findings), indent=2))
        else:
            for line in as_text(findings):
                click.echo(line)
        if any(each.state == "fail" for each in findings):
            sys.exit(1)

    return doctor


def _variables(context: click.Context) -> set[str]:
    """Return the variables of the environment that options of any command have."""
    group = context.parent.command if context.parent is not None else None
    commands = group.commands.values() if isinstance(group, click.Group) else ()
    found: set[str] = set()
    for command in commands:
        for parameter in command.params:
            named = parameter.envvar
            found |= {named} if isinstance(named, str) else set(named or ())
    return found
