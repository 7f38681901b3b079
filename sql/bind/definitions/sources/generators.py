"""Bind LOAD GENERATOR."""

from collections.abc import Mapping

from foreshore.errors import InvalidParameterValue
from foreshore.sources.generators import GENERATORS, LoadGenerator
from foreshore.sql import ast
from foreshore.sql.bind.definitions.sources.options import (
    Parse,
    count,
    milliseconds,
    parsed_options,
)

_OPTIONS: Mapping[str, tuple[str, Parse]] = {
    "tick interval": ("tick_ms", milliseconds),
    "up to": ("up_to", count),
}


def bind_generator(reads: ast.GeneratorSyntax) -> LoadGenerator:
    """Return what a load generator is asked for."""
    if reads.generator not in GENERATORS:
        raise InvalidParameterValue(
            f'unknown load generator "{reads.generator}"',
            hint=f"There are {', '.join(name.upper() for name in GENERATORS)}.",
            position=reads.at + 1,
        )
    options = parsed_options("LOAD GENERATOR", reads.options, _OPTIONS)
    return LoadGenerator(reads.generator, **options)  # type: ignore[arg-type]
