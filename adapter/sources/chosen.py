"""Which outputs of a source become relations, and what these are called."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from foreshore.adapter.statement.news import Notices
from foreshore.errors import (
    DuplicateTable,
    InvalidParameterValue,
    ObjectNotInPrerequisiteState,
    UndefinedTable,
)
from foreshore.item_view import Name
from foreshore.sinks.spec import FRONTIERS
from foreshore.sources.outputs import ERRORS, OWN_ROWS, PROGRESS, Output
from foreshore.sources.spec import SourceSpec, is_pushed, known_outputs
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.plan import AskedTables


@dataclass(frozen=True, slots=True)
class Part:
    """A relation that a source is to write, and the output that it gets."""

    name: Name
    reference: str


def parts_of_new(
    name: Name,
    progress: Name,
    spec: SourceSpec,
    outputs: Mapping[str, Output],
    asked: AskedTables | None,
) -> tuple[Part, ...]:
    """Return the relations that come with a source: progress, errors, and the tables asked for.

    What is made up has no errors. What is sent has no progress either.
    """
    if is_pushed(spec):
        return chosen(name, outputs, asked)
    parts = [Part(progress, PROGRESS)]
    if known_outputs(spec) is None:
        parts.append(Part(Name(name.database, name.schema, f"{name.item}_errors"), ERRORS))
    return (*parts, *chosen(name, outputs, asked))


def chosen(
    name: Name, outputs: Mapping[str, Output], asked: AskedTables | None
) -> tuple[Part, ...]:
    """Return the tables asked for, of a source called `name`.

    Raises if they do not exist there, cannot be read, or two would have the same name.
    """
    references = [each for each in outputs if each != OWN_ROWS]
    if asked is None:
        return ()
    if OWN_ROWS in outputs:
        raise InvalidParameterValue(
            "the source has rows of its own and no tables", hint="Leave out the list of tables."
        )
    if asked.tables:
        parts = [
            Part(each.name or _beside(name, found), found)
            for each in asked.tables
            for found in [_found(references, each.reference)]
        ]
    else:
        parts = [Part(_beside(name, each), each) for each in _wanted(references, asked)]
    check_obstacles({part.reference: outputs[part.reference] for part in parts})
    return _distinct(parts)


def of_all_tables(notice: Notices, outputs: Mapping[str, Output]) -> Mapping[str, Output]:
    """Return the outputs among which FOR ALL TABLES chooses.

    The table in which our own sinks keep their frontiers is not one of them; a notice tells it.
    """
    if FRONTIERS not in outputs:
        return outputs
    notice(
        f'table "{FRONTIERS}" is left out',
        hint="Sinks keep there how far they have come. FOR TABLES can name it.",
    )
    return {each: output for each, output in outputs.items() if each != FRONTIERS}


def check_obstacles(outputs: Mapping[str, Output]) -> None:
    """Raise ObjectNotInPrerequisiteState if an output cannot be read: the first one, and others."""
    found = [each for each in outputs.values() if each.obstacle]
    if found:
        first, *others = [each.obstacle for each in found]
        raise ObjectNotInPrerequisiteState(
            first,
            detail=f"So it is with others: {listed(others)}." if others else None,
            hint=found[0].hint or None,
        )


def _wanted(references: list[str], asked: AskedTables) -> list[str]:
    """Return the references of FOR ALL TABLES, or of FOR SCHEMAS."""
    if asked.every:
        if not references:
            raise UndefinedTable(
                "the source has no tables", hint="Leave out FOR ALL TABLES, and add tables later."
            )
        return references
    for schema in asked.schemas:
        if not any(each.startswith(f"{schema}.") for each in references):
            raise UndefinedTable(f'the source has no tables in schema "{schema}"')
    return [each for each in references if each.rpartition(".")[0] in asked.schemas]


def found_reference(outputs: Mapping[str, Output], asked: str) -> str:
    """Return the output of a reference that may lack its first names; raises UndefinedTable."""
    return _found([each for each in outputs if each != OWN_ROWS], asked)


def _found(references: list[str], asked: str) -> str:
    """Return the output of a reference that may lack its first names."""
    if asked in references:
        return asked
    found = [each for each in references if each.endswith(f".{asked}")]
    if len(found) > 1:
        raise InvalidParameterValue(
            f'table "{asked}" is ambiguous in the source', hint=f"It has {', '.join(found)}."
        )
    if not found:
        like = get_close_matches(asked, references, 1) or get_close_matches(
            asked, [each.rpartition(".")[2] for each in references], 1
        )
        perhaps = f'Perhaps you mean "{like[0]}". ' if like else ""
        raise UndefinedTable(
            f'table "{asked}" does not exist in the source',
            hint=f"{perhaps}It has {listed(references)}.",
        )
    return found[0]


def listed(references: list[str], most: int = 20) -> str:
    """Return names as a text, the first of them if they are many."""
    more = f" and {len(references) - most} more" if len(references) > most else ""
    return ", ".join(references[:most]) + more if references else "no tables"


def _beside(name: Name, reference: str) -> Name:
    """Return the name of an output's relation in the schema of its source."""
    return Name(name.database, name.schema, reference.rpartition(".")[2])


def _distinct(parts: Iterable[Part]) -> tuple[Part, ...]:
    seen: dict[Name, Part] = {}
    for part in parts:
        if (other := seen.setdefault(part.name, part)) is not part:
            raise DuplicateTable(
                f"two tables of the source would be called {quote_identifier(part.name.item)}: "
                f"{other.reference} and {part.reference}",
                hint="Give one of them another name by FOR TABLES (reference AS name).",
            )
    return tuple(seen.values())
