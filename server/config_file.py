"""A file of options: TOML whose keys are the options of `foreshore serve`.

    data-dir = "/srv/foreshore"
    pg-listen = "0.0.0.0:6875"
    copy-dir = ["/srv/files", "s3://bucket/files"]
    http-tls = true

The command line and the environment come first, then the file, then the defaults.
"""

import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import click

FC = TypeVar("FC", bound=Callable[..., Any])


def config_option(command: FC) -> FC:
    """Add the option `--config` to a command, which gives its other options their values."""
    return click.option(
        "--config",
        envvar="FORESHORE_CONFIG",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_load,
        help='A TOML file of options, such as pg-listen = "0.0.0.0:6875".',
    )(command)


def _load(context: click.Context, parameter: click.Parameter, file: Path | None) -> None:
    """Let the options of a file be the command's defaults; raises UsageError."""
    if file is None or context.resilient_parsing:
        return
    try:
        given = tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{file}: {error}", context) from None
    known = _options(context)
    own = {each.name for each in context.command.params}
    context.default_map = {
        name: value
        for key, each in given.items()
        for name, value in (_checked(f"{file}: ", known, key, each),)
        if name in own
    }


def _options(context: click.Context) -> Mapping[str, click.Option]:
    """Return the options that the file may give, by the names of their parameters.

    Those of `serve` may be in the file of any command.
    """
    group = context.find_root().command
    commands = [context.command]
    if isinstance(group, click.Group) and "serve" in group.commands:
        commands.append(group.commands["serve"])
    return {
        each.name: each
        for command in commands
        for each in command.params
        if isinstance(each, click.Option) and each.name is not None and each.name != "config"
    }


def _checked(
    file: str, known: Mapping[str, click.Option], key: str, value: object
) -> tuple[str, object]:
    """Return the name of an option's parameter and its value; raises UsageError."""
    name = key.replace("-", "_")
    option = known.get(name)
    if option is None:
        near = get_close_matches(name, known, 1)
        also = f' Is "{near[0].replace("_", "-")}" meant?' if near else ""
        raise click.UsageError(f'{file}there is no option "{key}".{also}')
    wanted, fits = "a string or a number", isinstance(value, str | int | float)
    if option.is_flag:
        wanted, fits = "true or false", isinstance(value, bool)
    elif option.multiple:
        wanted = "an array of strings"
        fits = isinstance(value, list) and all(isinstance(each, str) for each in value)
    elif isinstance(value, bool):
        fits = False
    if not fits:
        raise click.UsageError(f'{file}the option "{key}" needs {wanted}.')
    return name, value
