"""docs/reference/options.md lists the commands of the program; `GOLDEN=rewrite` writes it."""

import inspect

import click

from foreshore.server.main import main
from tests.adapter.reference.generated import check_generated, table

METAVARS = {"integer range": "N", "float range": "NUMBER", "datetime": "TIME"}


def test_options_are_those_of_the_program() -> None:
    lines: list[str] = []
    shared = {each.name for each in main.commands["serve"].params}
    for name, command in sorted(main.commands.items()):
        options = [each for each in command.params if isinstance(each, click.Option)]
        own = [each for each in options if name != "demo" or each.name not in shared]
        lines += [f"## foreshore {name}", "", *usage(command), ""]
        if len(own) < len(options):
            lines += ["It takes the options of `foreshore serve`, too.", ""]
        if own:
            header = ("option", "environment", "default", "meaning")
            lines += [*table(header, map(row, own)), ""]
    check_generated("options.md", "options", ["", *lines])


def usage(command: click.Command) -> list[str]:
    """Return what a command does, and how it is called."""
    pieces = command.collect_usage_pieces(click.Context(command))
    told = inspect.cleandoc(command.help or "").splitlines()
    return [*told, "", f"    foreshore {command.name} {' '.join(pieces)}"]


def row(option: click.Option) -> tuple[str, str, str, str]:
    """Return the row of an option."""
    names = ", ".join(f"`{each}`" for each in [*option.opts, *option.secondary_opts])
    made = METAVARS.get(option.type.name, option.make_metavar(click.Context(main)).strip("[]"))
    default = option.default if isinstance(option.default, str | int | float) else ""
    if option.is_flag:
        made, default = "", "on" if option.default is True else "off"
    return (
        f"{names} {option.metavar or made}".rstrip(),
        f"`{option.envvar}`" if option.envvar else "",
        f"`{default}`" if default != "" else "",
        option.help or "",
    )
