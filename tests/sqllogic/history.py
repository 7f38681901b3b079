"""Histories of two sessions, and whether PostgreSQL agrees that they ran one after another.

A transaction is what its session heard between BEGIN and COMMIT, and when: by a counter that goes
up whenever a statement is sent or answered. There has to be an order of the transactions that
keeps to these times, and in which PostgreSQL, which runs them one by one, gives each answer that
was given. So strict serializability is compared without asking how long either makes a session
wait, or whom it sends back with 40001.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from psycopg import pq

from tests.sqllogic.random_script import OUR_LIMITS, Outcome, agree, outcome
from tests.sqllogic.runner import Database

# Of who came too late, waited too long or met a change of the table: nothing was done.
LOST = ("40001", "40P01", "55P03", "55000", "25P02", *OUR_LIMITS)
# MERGE on its own may find a key that somebody has given since it read, as PostgreSQL's may.
DUPLICATE = "23505"

# All that the answers to come depend on: rows, columns with their defaults, and keys.
STATE = (
    "SELECT table_name, query_to_xml('TABLE ' || table_name, true, true, '')::text"
    " FROM information_schema.tables WHERE table_schema = current_schema()",
    "SELECT table_name, column_name, is_nullable, column_default FROM information_schema.columns"
    " WHERE table_schema = current_schema()",
    "SELECT conname, conrelid::regclass, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE connamespace = current_schema()::regnamespace",
    "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema()",
)


@dataclass(frozen=True, slots=True)
class Statement:
    """What was said and answered, and when both happened."""

    sql: str
    outcome: Outcome
    tag: str
    sent: int
    told: int

    @property
    def changes(self) -> bool:
        """Whether it has changed something for sure."""
        if self.outcome[0] or "IF " in self.sql:
            return False
        kind, *counts = self.tag.split()
        return kind in ("ALTER", "CREATE", "DROP") or (
            kind in ("INSERT", "UPDATE", "DELETE", "MERGE") and counts[-1] != "0"
        )


@dataclass(frozen=True, slots=True)
class Transaction:
    """Statements of a session that took effect together, at one moment from `since` to `told`."""

    session: int
    statements: tuple[Statement, ...]

    @property
    def changes(self) -> bool:
        """Whether it has changed something for sure: its moment is then that of its commit."""
        undone = any(each.sql.startswith("ROLLBACK TO") for each in self.statements)
        return not undone and any(each.changes for each in self.statements)

    @property
    def since(self) -> int:
        """Return a time before its moment."""
        return self.statements[-1 if self.changes else 0].sent

    @property
    def told(self) -> int:
        """Return a time after its moment."""
        return self.statements[-1].told

    def replay(self, database: Database) -> str:
        """Say it again in a block; returns in what the answers differ, or nothing.

        What has failed in a block is left out: it did nothing, and what it was told is of the
        newest keys and names, whatever the time that the block reads at.
        """
        for each in self.statements:
            code = each.outcome[0]
            if each.sql.startswith(("BEGIN", "COMMIT")) or code in LOST:
                continue
            if code and len(self.statements) > 1:
                continue
            if code == DUPLICATE and each.sql.startswith("MERGE"):
                continue
            wanted = outcome(database, each.sql)
            if not agree(each.outcome, wanted):
                return f"{each.sql}\n  {each.outcome}\n  instead of {wanted}"
        return ""


@dataclass(slots=True)
class Order:
    """Search for an order of transactions in which PostgreSQL gives the answers they were given."""

    database: Database
    sessions: tuple[list[Transaction], ...]
    order: list[Transaction] = field(default_factory=list)
    differences: dict[str, None] = field(default_factory=dict)
    in_vain: set[tuple[object, ...]] = field(default_factory=set)

    def found(self) -> bool:
        """Whether there is one that begins with `order`; the database is in a block, after it."""
        done = [sum(each.session == i for each in self.order) for i in range(len(self.sessions))]
        left = [own[n:] for own, n in zip(self.sessions, done, strict=True)]
        if not any(left):
            return True
        place = len(self.order)
        here = (*done, *(tuple(sorted(self.database.run(sql))) for sql in STATE))
        if here in self.in_vain:
            return False
        heads = [own[0] for own in left if own]
        first = [each for each in heads if all(each.since < other.told for other in heads)]
        for each in sorted(first, key=lambda each: (each.changes, each.told)):
            self.database.run(f"SAVEPOINT before_{place}")
            self.database.run("SAVEPOINT transaction")
            difference = each.replay(self.database)
            if difference:
                when = f"after {place}, session {each.session} at {each.since}-{each.told}:"
                self.differences.setdefault(f"{when} {difference}")
            else:
                if self.database.status == pq.TransactionStatus.INERROR:
                    self.database.run("ROLLBACK TO transaction")
                self.database.run("RELEASE transaction")
                self.order.append(each)
                if self.found():
                    return True
                self.order.pop()
            self.database.run(f"ROLLBACK TO before_{place}")
        self.in_vain.add(here)
        return False
