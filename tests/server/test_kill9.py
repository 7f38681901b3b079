import asyncio
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from foreshore.server.demo import kill9
from foreshore.server.demo.kill9 import ACCOUNTS, FIRST_BALANCE, VIEWS, Tally, compare


def tables_of(txns: list[tuple[int, int, int]]) -> dict[str, pa.Table]:
    """Return the tables after transfers of an amount between accounts."""
    balances = [FIRST_BALANCE] * ACCOUNTS
    lines = []
    for number, (source, target, amount) in enumerate(txns, 1):
        for side, account, by in ((1, source, -amount), (2, target, amount)):
            balances[account] += by
            lines.append({"txn": number, "side": side, "account": account, "amount": by})
    accounts = {
        "id": range(ACCOUNTS),
        "grp": [i % 10 for i in range(ACCOUNTS)],
        "balance": balances,
    }
    return {"accounts": pa.table(accounts), "ledger": pa.Table.from_pylist(lines)}


def views_of(tables: dict[str, pa.Table]) -> dict[str, list[tuple[Any, ...]]]:
    with duckdb.connect(":memory:") as own:
        for name, rows in tables.items():
            own.register(name, rows)
        return {name: own.execute(query).fetchall() for name, query in VIEWS.items()}


TABLES = tables_of([(1, 2, 5), (3, 2, 7), (4, 9, 1)])


def test_what_is_whole_is_right() -> None:
    found, durable = compare(TABLES, views_of(TABLES), Tally(acknowledged={1, 2}, under_way={3, 4}))
    assert found.is_right
    assert durable == {3}


def test_acknowledged_commit_that_is_not_there_is_lost() -> None:
    found, _ = compare(TABLES, views_of(TABLES), Tally(acknowledged={1, 2, 3, 4}))
    assert (list(found.lost), found.is_right) == ([4], False)


def test_transaction_of_nobody_is_told() -> None:
    found, _ = compare(TABLES, views_of(TABLES), Tally(acknowledged={1, 2}))
    assert (list(found.invented), found.is_right) == ([3], False)


def test_half_a_transaction_is_torn() -> None:
    torn = TABLES | {"ledger": TABLES["ledger"].slice(0, 5)}
    found, _ = compare(torn, views_of(torn), Tally(acknowledged={1, 2, 3}))
    assert (list(found.torn), found.is_right) == ([3], False)


def test_money_that_is_gone_is_told() -> None:
    accounts = TABLES["accounts"]
    fewer = TABLES | {"accounts": accounts.slice(1)}
    found, _ = compare(fewer, views_of(fewer), Tally(acknowledged={1, 2, 3}))
    assert (found.missing_money, found.is_right) == (FIRST_BALANCE, False)


@pytest.mark.parametrize("name", VIEWS)
def test_view_that_lacks_or_repeats_a_row_is_told(name: str) -> None:
    views = views_of(tables_of([(1, 2, i) for i in range(1, 6)]))
    tables = tables_of([(1, 2, i) for i in range(1, 6)])
    tally = Tally(acknowledged={1, 2, 3, 4, 5})
    assert compare(tables, views, tally)[0].is_right
    for rows in (views[name][1:], [*views[name], views[name][0]]):
        found, _ = compare(tables, views | {name: rows}, tally)
        assert not found.is_right
        assert [n for n, equal in found.views.items() if not equal] == [name]


@pytest.mark.parametrize(("writes", "longest", "counts"), [(25, 60.0, (20, 25)), (0, 0.01, (0, 0))])
def test_kill_waits_for_commits(
    writes: int, longest: float, counts: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kill9, "LONGEST_LOAD_S", longest)

    async def waited() -> int:
        tally = Tally()

        async def write() -> None:
            for number in range(writes):
                tally.acknowledged.add(number)
                await asyncio.sleep(0)
            await asyncio.Event().wait()

        writer = asyncio.create_task(write())
        await kill9.worked([writer], tally, 0)
        writer.cancel()
        return len(tally.acknowledged)

    least, most = counts
    assert least <= asyncio.run(waited()) <= most


def test_verdict_says_how_many_were_checked() -> None:
    assert "of 1,200 acknowledged commits nothing was lost" in kill9.verdict(1_200, 0)
    assert "NOTHING WAS CHECKED" in kill9.verdict(0, 0)
    assert kill9.verdict(5, 1) == "THAT IS WRONG"


@pytest.mark.full
def test_demo_loses_nothing_through_kills(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill9, "LOAD_SECONDS", (0.3, 1.0))
    said: list[str] = []
    assert kill9.run_kill9(tmp_path / "data", 2, said.append, seed=1) == 0
    assert sum("equals its query" in line for line in said) == 2 * len(VIEWS) + 1
    assert not any("WRONG" in line for line in said)
