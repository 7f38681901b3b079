"""Hints for statements of other systems: what does their work here."""

from collections.abc import Mapping
from types import MappingProxyType

_VIEW = "CREATE MATERIALIZED VIEW keeps the rows of a query up to date."
_CHANGES = "CREATE SINK sends the changes of a table or view on; SUBSCRIBE shows them to a client."

# By the first word after CREATE.
INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "alert": "Make a materialized view of what is wrong, and CREATE SINK ... INTO WEBHOOK.",
        "dictionary": "Join a table with a primary key, or a source that follows what changes.",
        "dynamic": f"{_VIEW} WITH (TARGET LAG = '1 min') says how late it may be.",
        "foreign": "CREATE SOURCE reads from other systems.",
        "live": f"{_VIEW} SUBSCRIBE follows it.",
        "pipe": "CREATE SOURCE ... FROM FILES follows a directory or a bucket.",
        "procedure": "CREATE FUNCTION takes LANGUAGE sql and python; clients send other steps.",
        "random": "CREATE SOURCE ... FROM LOAD GENERATOR makes rows at random.",
        "rule": "CREATE POLICY restricts rows, CREATE VIEW shows others.",
        "server": "CREATE CONNECTION says how to reach another system.",
        "stream": "CREATE SOURCE reads a stream, CREATE TABLE ... WITH (APPEND ONLY) keeps one.",
        "task": f"{_VIEW} REFRESH EVERY does so at times, and CREATE SINK acts on changes.",
        "trigger": _CHANGES,
        "publication": _CHANGES,
    }
)
