"""Bind LOAD GENERATOR."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from foreshore.errors import InvalidParameterValue
from foreshore.sources.generators import GENERATORS, LoadGenerator
from foreshore.sql import ast
from foreshore.sql.bind.definitions.sources.options import (
    OptionValue,
    Parse,
    count,
    milliseconds,
    parsed_options,
)

LARGEST_SCALE = 10
MOST_AT_ONCE = 1_000_000  # ticks


def _at_least_1(most: int) -> Parse:
    def parse(name: str, value: OptionValue) -> int:
        found = count(name, value)
        if not 1 <= found <= most:
            raise InvalidParameterValue(f'option "{name}" must be between 1 and {most}')
        return found

    return parse


def _scale(name: str, value: OptionValue) -> int:
    """Return hundredths of a scale factor."""
    try:
        found = Decimal(str(value)) * 100
    except InvalidOperation:
        found = Decimal(0)
    if found != found.to_integral_value() or not 1 <= found <= 100 * LARGEST_SCALE:
        raise InvalidParameterValue(
            f'option "{name}" must be between 0.01 and {LARGEST_SCALE}, with two digits at most '
            "after the point"
        )
    return int(found)


_TICKS: Mapping[str, tuple[str, Parse]] = {
    "tick interval": ("tick_ms", milliseconds),
    "up to": ("up_to", count),
    "as of": ("as_of", _at_least_1(MOST_AT_ONCE)),
}
_OPTIONS: Mapping[str, Mapping[str, tuple[str, Parse]]] = {
    "counter": {**_TICKS, "max cardinality": ("max_cardinality", _at_least_1(1 << 40))},
    "clock": {"tick interval": ("tick_ms", milliseconds)},
    "tpch": {**_TICKS, "scale factor": ("scale_percent", _scale)},
    "key value": {
        **_TICKS,
        "keys": ("keys", _at_least_1(10_000_000)),
        "partitions": ("partitions", _at_least_1(1_000_000)),
        "snapshot rounds": ("snapshot_rounds", _at_least_1(1_000)),
        "value size": ("value_size", _at_least_1(1 << 20)),
        "batch size": ("batch_size", _at_least_1(1_000_000)),
        "seed": ("seed", _at_least_1((1 << 31) - 1)),
    },
}
LARGEST_BATCH = 1 << 30  # bytes of the values of a round


def bind_generator(reads: ast.GeneratorSyntax) -> LoadGenerator:
    """Return what a load generator is asked for."""
    if reads.generator not in GENERATORS:
        raise InvalidParameterValue(
            f'unknown load generator "{reads.generator}"',
            hint=f"There are {', '.join(name.upper() for name in GENERATORS)}.",
            position=reads.at + 1,
        )
    options = parsed_options("LOAD GENERATOR", reads.options, _OPTIONS.get(reads.generator, _TICKS))
    made = LoadGenerator(reads.generator, **options)  # type: ignore[arg-type]
    if max(made.keys, made.batch_size) * made.value_size > LARGEST_BATCH:
        raise InvalidParameterValue(
            "the values of all keys have more than 1 GB", position=reads.at + 1
        )
    return made
