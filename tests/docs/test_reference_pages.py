"""docs/reference has a page for all that the parser takes: statements, key words, options; and links resolve."""

import ast as python
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from foreshore.connection_spec import RULES, TUNNEL, TUNNELLED
from foreshore.garbage import collection_paused
from foreshore.sql import ast
from foreshore.sql.bind.definitions import cluster
from foreshore.sql.bind.writes import copy_files, copy_options
from foreshore.sql.parse import explain, grants, objects, roles, tables
from foreshore.sql.parse.statement import _STATEMENTS, _UNSUPPORTED_WORDS
from tests.docs.pages import (
    DOCS,
    INDEX,
    PAGES,
    REFERENCE,
    ROOT,
    anchors,
    blocks,
    links,
    statements,
)

PARSERS = ROOT / "sql" / "parse"
BOUND = ROOT / "sql" / "bind" / "definitions"
# Key words that the parser knows only to refuse what follows them, or to read what the catalog keeps.
REFUSED = frozenset(
    (
        "depends", "inherits", "marks", "materialize", "prepared", "rule", "storing", "support", "tablespace",
        "template", "transform", "unencrypted",
    )
)  # fmt: skip
# The grammar of expressions and types, which the generated pages describe.
EXPRESSIONS = (PARSERS / "grammar" / "expression.py", PARSERS / "grammar" / "types.py")
# The pages that describe what a file of the parser reads; others may be described on any page.
PARSED_PAGES = {
    "changes": "insert update delete merge select",
    "clusters": "create-cluster alter-cluster",
    "connections": "create-connection",
    "copying": "copy select",
    "cursors": "declare-fetch",
    "expectations": "create-view create-materialized-view create-assertion",
    "explain": "explain select",
    "grants": "grant alter-default-privileges",
    "kafka_sinks": "create-sink-kafka",
    "kafka_sources": "create-source-kafka create-sink-kafka",
    "metrics": "create-metric",
    "network": "create-network-policy",
    "policies": "create-policy alter-table drop comment",
    "refresh": "create-view create-materialized-view refresh-materialized-view verify-materialized-view",
    "sequences": "create-sequence",
    "subscribe": "subscribe create-subscription select",
    "tuning": "alter-table",
    "webhook_sinks": "create-sink-webhook",
    "webhooks": "create-source-webhook",
}
SECTIONS = ("Notes", "Examples", "See also")
# Where the options of each module of `BOUND` are described.
OPTION_PAGES = {
    "sinks.create": ("create-sink",),
    "sinks.kafka": ("create-sink-kafka",),
    "sinks.places": ("create-sink-files",),
    "sinks.postgres": ("create-sink-postgres",),
    "sinks.webhook": ("create-sink-webhook",),
    "sources.files": ("create-source-files",),
    "sources.generators": ("create-source-load-generator",),
    "sources.iceberg": ("create-source-iceberg",),
    "sources.kafka": ("create-source-kafka",),
    "sources.postgres": ("create-source-postgres",),
    "sources.python": ("create-source-python",),
}


def text_of(name: str) -> str:
    """Return a page of the reference."""
    return (REFERENCE / f"{name}.md").read_text()


@cache
def synopses(names: str = "") -> str:
    """Return the synopses of pages, of all without names, and what they say in backquotes."""
    pages = [REFERENCE / f"{name}.md" for name in names.split()] or PAGES
    found = [block.text for page in pages for block in blocks(page) if block.is_synopsis]
    found += [each for page in pages for each in re.findall(r"`[^`\n]+`", page.read_text())]
    return "\n".join(found)


# --- what the parser takes -------------------------------------------------------------------


def test_each_kind_of_statement_is_in_an_example() -> None:
    shown = {
        type(statement.ast)
        for page in PAGES
        for block in blocks(page)
        if block.is_example
        for statement in statements(block)
    }
    known = set(get_args(ast.StatementSyntax)) - {ast.Unsupported}
    assert {each.__name__ for each in known - shown} == set()


@pytest.mark.parametrize("word", sorted(_STATEMENTS))
def test_each_first_word_begins_a_line_of_a_synopsis(word: str) -> None:
    begins = re.compile(rf"^(\{{[^}}\n]*\b)?(\[ )?{word.upper()}\b", re.MULTILINE)
    assert begins.search(synopses()), word


def test_the_index_names_unsupported_statements() -> None:
    line = next(each for each in INDEX.read_text().splitlines() if "0A000: CALL" in each)
    assert [word for word in _UNSUPPORTED_WORDS if word.upper() not in line] == []


@pytest.mark.parametrize("kind", [" ".join(words).upper() for words in objects._KINDS])
def test_each_kind_of_object_can_be_created_altered_dropped_and_described(kind: str) -> None:
    assert re.search(rf"\b{kind}\b", text_of("drop"))
    assert re.search(rf"\b{kind}\b", text_of("comment"))
    assert re.search(rf"\b{kind}\b", text_of("show"))
    for verb in ("CREATE", "ALTER"):
        begins = re.compile(rf"^{verb}\b[^\n(]*\b{kind}\b", re.MULTILINE)
        assert begins.search(synopses()), (verb, kind)


def test_show_names_all_objects_that_it_lists() -> None:
    text = text_of("show")
    assert [words for words in objects._SHOWN if f"`{' '.join(words).upper()}`" not in text] == []


@pytest.mark.parametrize("file", sorted(PARSERS.rglob("*.py")), ids=lambda each: each.stem)
def test_each_key_word_that_is_parsed_is_described(file: Path) -> None:
    if file in EXPRESSIONS:
        return
    pages = PARSED_PAGES.get(file.stem, "")
    described = set(re.findall(r"[A-Z_]+", synopses(pages).upper()))
    words = set(_words_parsed(file)) - REFUSED
    assert {word for word in words if word.upper() not in described} == set()


def _words_parsed(path: Path) -> Iterator[str]:
    """Yield the words with which a file of the parser calls `accept`, `expect`, `_take` and the like."""
    with collection_paused():
        tree = python.parse(path.read_text())
    for node in python.walk(tree):
        match node:
            case python.Call(
                func=python.Attribute(
                    attr="accept" | "expect" | "at_word" | "at_words" | "_take" | "_word" | "_after"
                ),
                args=args,
            ):
                for each in args:
                    if isinstance(each, python.Constant) and str(each.value).isidentifier():
                        yield str(each.value)


# --- options ---------------------------------------------------------------------------------


def test_each_module_with_options_has_a_page() -> None:
    modules = {
        f"{path.parent.name}.{path.stem}"
        for path in BOUND.rglob("*.py")
        if re.search(r"^_OPTIONS\b", path.read_text(), re.MULTILINE)
    }
    assert modules == OPTION_PAGES.keys()


@pytest.mark.parametrize("module", OPTION_PAGES)
def test_each_option_of_sources_and_sinks_is_described(module: str) -> None:
    text = "".join(map(text_of, OPTION_PAGES[module]))
    options = import_module(f"foreshore.sql.bind.definitions.{module}")._OPTIONS
    names = {name for name, field in _flat(options) if isinstance(field, tuple)}
    assert names
    assert [each for each in names if f"`{each.upper()}`" not in text] == []


def _flat(options: dict[str, object]) -> Iterator[tuple[str, object]]:
    for name, field in options.items():
        if isinstance(field, dict):
            yield from _flat(field)
        else:
            yield name, field


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("create-connection", {name for rules in RULES.values() for name in rules}),
        ("create-connection", RULES),
        ("create-cluster", cluster.ENGINE_OPTIONS),
        ("copy", copy_options._NAMES),
        ("copy", ("max file size", "version")),
        ("copy", copy_files._FORMATS),
        ("create-role", roles._FLAGS),
        ("grant", grants.PRIVILEGES - {"temp"}),
        ("explain", explain._WITHOUT_EFFECT),
        ("create-table", tables.LIKE_PROPERTIES),
        ("lock-table", tables._LOCK_MODES),
        ("alter-default-privileges", grants._PLURALS),
    ],
)
def test_each_option_is_described(page: str, names: frozenset[str]) -> None:
    text = text_of(page).upper()
    assert [each for each in names if not re.search(rf"\b{each.upper()}\b", text)] == []


def test_options_of_connections_are_those_of_each_kind() -> None:
    described = {
        (kind.lower(), option.lower())
        for options, kinds in re.findall(
            r"^\| ((?:`[A-Z0-9 ]+`(?:, )?)+) \| ([A-Z, ()]+) \|",
            text_of("create-connection"),
            re.MULTILINE,
        )
        for option in re.findall(r"`([^`]+)`", options)
        for kind in kinds.split(", ")
    }
    known = {(kind, option) for kind, rules in RULES.items() for option in rules}
    assert described == known | {(kind, TUNNEL) for kind in TUNNELLED}


# --- pages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_has_the_form_of_all(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert len(lines) <= 150
    assert lines[0].startswith("# ")
    assert lines[2].endswith(".") or lines[3].endswith("."), "one sentence of what it does"
    headings = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    assert [each for each in headings if each in SECTIONS] == list(SECTIONS)
    assert blocks(page)[0].is_synopsis
    assert any(block.is_example for block in blocks(page))


def test_the_index_links_each_page_by_its_title() -> None:
    index = INDEX.read_text()
    titles = {page.stem: page.read_text().splitlines()[0].removeprefix("# ") for page in PAGES}
    assert [
        name for name, title in titles.items() if f"- [{title}]({name}.md): " not in index
    ] == []


@pytest.mark.parametrize("page", [*PAGES, INDEX], ids=lambda page: page.stem)
def test_links_resolve(page: Path) -> None:
    for target in links(page):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.is_relative_to(DOCS), target
        assert linked.is_file(), target
        assert not anchor or anchor in anchors(linked), target
