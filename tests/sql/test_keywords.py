"""Names written by `quote_identifier` are parsed as the same name wherever names may stand."""

import re
from itertools import chain
from random import Random

import pytest
from sqlglot.dialects import Postgres
from sqlglot.tokens import Tokenizer, TokenType

from foreshore.errors import DatabaseError
from foreshore.sql import ast
from foreshore.sql.parse import keywords
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.parse.parse import parse
from tests.effort import examples

PLAIN = "zzq"  # not a key word
SCALARS = (
    "k, k + 1, NOT k, 1 - k, (k), (k + 1), (k) + 1, k IS NULL, k IS DISTINCT FROM k, k IN (1, k), "
    "CASE k WHEN k THEN k ELSE k END, f(k, k), f(DISTINCT k), f(k ORDER BY k), f(k) || k || 'x', "
    "k::text, CAST(k AS text), k[1], k[1:2], -k, k - 1, k BETWEEN k AND k, k LIKE 'x', k ISNULL, "
    "k NOT LIKE k, k SIMILAR TO 'x', k AND k OR k, coalesce(k, k), extract(year FROM k), ARRAY[k], "
    "substring(k FROM 1 FOR k), position(k IN k), trim(k), trim(BOTH k FROM k), (k, k) = (1, 2), "
    "k = ANY (k), k AT TIME ZONE 'UTC', k COLLATE \"C\", k ~ 'x', interval '1 day' + k, k ->> 'a', "
    "k OPERATOR(pg_catalog.+) k, overlay(k PLACING k FROM 1), k.a + k.k, k.k.k, (k.a), -k.a"
)
TEXTS = (
    "CREATE TABLE k.k.k (k int DEFAULT 1, b int, CONSTRAINT k CHECK (k > 0), PRIMARY KEY (k, b))",
    "CREATE TABLE k.k.k (a int, k int, CONSTRAINT c CHECK (k = 1), UNIQUE INDEX k (a, k))",
    "CREATE TABLE k.k.k (k int GENERATED ALWAYS AS IDENTITY (SEQUENCE NAME k.k.k))",
    "CREATE TABLE t (a int, CONSTRAINT c CHECK (NOT k))",
    "CREATE INDEX k IN CLUSTER k ON k.k.k (k, b, (k + 1), (k), k)",
    "CREATE DEFAULT INDEX k IN CLUSTER k ON k.k.k",
    "CREATE SEQUENCE k.k.k",
    f"CREATE VIEW k.k.k (k, b) AS SELECT {SCALARS} FROM k.k.k WHERE k GROUP BY k ORDER BY k LIMIT 1",
    "CREATE MATERIALIZED VIEW k.k.k (k) IN CLUSTER k AS SELECT k.*, count(k.*) AS k FROM k.k.k AS k",
    "CREATE VIEW v AS SELECT k FROM k.k.k GROUP BY k",
    "CREATE SUBSCRIPTION k.k.k FOR (SELECT * FROM k.k.k)",
    "CREATE VIEW v AS SELECT k AS a FROM (SELECT k, b AS k, NULL::int AS k FROM k.k.k) AS k",
    "CREATE VIEW v AS SELECT 1 FROM k.k.k, s.t AS k JOIN k.k.k AS k USING (k), f(k) AS k (k, b)",
    "CREATE VIEW v AS SELECT 1 FROM k.k.k AS k (k, b) WHERE k.b UNION ALL SELECT * FROM k.k.k",
    "CREATE VIEW v AS WITH w AS (SELECT k FROM k.k.k) SELECT 1 IN (SELECT * FROM k.k.k) FROM w",
)


def _tree(text: str, name: str) -> str:
    """Return the tree of the text with `name` for k, without offsets and texts."""
    written = re.sub(r"\bk\b", lambda _: quote_identifier(name), text)
    (statement,) = parse(written)
    for each in ast.nodes_of(statement.ast):
        for field in ("text", "default_text"):
            if hasattr(each, field) and not isinstance(each, ast.String):
                setattr(each, field, "")
    return re.sub(r"\b\d+\b", "", repr(statement.ast))


@pytest.mark.scaled
def test_quoted_key_word_parses_as_name() -> None:
    known = chain(
        *(each for each in vars(keywords).values() if isinstance(each, frozenset)),
        Postgres.Tokenizer.KEYWORDS,
        Tokenizer.KEYWORDS,
        (each.name for each in TokenType),
    )
    words = {word.lower() for each in known for word in re.findall(r"[A-Za-z_]+", each)}
    words |= set(re.findall(r"\b[a-z_]+\b", " ".join(TEXTS).lower()))
    trees = [_tree(text, PLAIN) for text in TEXTS]
    misread = set()
    chosen = Random(1).sample(sorted(words), examples(len(words)))
    for word in chosen:
        if quote_identifier(word) == word:
            for text, tree in zip(TEXTS, trees, strict=True):
                try:
                    is_same = _tree(text, word) == tree.replace(repr(PLAIN), repr(word))
                except DatabaseError:
                    is_same = False
                if not is_same:
                    misread.add((word, text))
    assert not misread, sorted(misread)
