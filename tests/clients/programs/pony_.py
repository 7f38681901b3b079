"""PonyORM over psycopg2: entities, schema, queries from generators, optimistic checks."""

import datetime as dt
import uuid
from decimal import Decimal

from pony import orm
from steps import equal, parts, raises, run, step

AT = parts()
db = orm.Database()


class Shop(db.Entity):
    name = orm.Required(str, 40, unique=True)
    opened = orm.Required(dt.datetime, default=lambda: dt.datetime(2024, 1, 2, 3, 4, 5, 6))
    data = orm.Optional(orm.Json)
    tags = orm.Optional(orm.StrArray)
    numbers = orm.Optional(orm.IntArray)
    raw = orm.Optional(bytes)
    day = orm.Optional(dt.date)
    at = orm.Optional(dt.time)
    lasts = orm.Optional(dt.timedelta)
    note = orm.Optional(orm.LongStr)
    items = orm.Set("Item")
    labels = orm.Set("Label")


class Label(db.Entity):
    a = orm.Required(int)
    b = orm.Required(str)
    shops = orm.Set(Shop)
    orm.PrimaryKey(a, b)


class Item(db.Entity):
    shop = orm.Required(Shop)
    name = orm.Required(str, index="item_by_name")
    price = orm.Required(Decimal, precision=10, scale=2)
    weight = orm.Optional(float)
    key = orm.Optional(uuid.UUID)
    big = orm.Optional(int, size=64)
    ok = orm.Required(bool, default=True)
    orm.composite_key(shop, name)


class Special(Item):
    extra = orm.Optional(str)


db.bind(
    provider="postgres", user=AT["user"], host=AT["host"], port=AT["port"], database=AT["database"]
)


@step
def mapping():
    db.generate_mapping(create_tables=True)
    with orm.db_session:
        equal(db.table_exists("item") if hasattr(db, "table_exists") else True, True)


@step
def check_tables():
    db.check_tables()


@step
def write():
    with orm.db_session:
        a = Shop(
            name="a",
            data={"k": [1, {"x": None}]},
            tags=["u", "v"],
            numbers=[1, 2],
            raw=b"\0\xff",
            day=dt.date(2024, 2, 29),
            at=dt.time(1, 2, 3),
            lasts=dt.timedelta(days=1, hours=2),
        )
        b = Shop(name="b")
        for n in range(1, 21):
            Item(shop=a, name=f"i{n}", price=Decimal(n) / 4, big=2**40)
        Special(shop=b, name="s", price=1, extra="e", key=uuid.UUID(int=4))
        Label(a=1, b="x", shops=[a, b])
    with orm.db_session:
        a = Shop.get(name="a")
        equal(
            (a.data, list(a.tags), list(a.numbers), a.raw, a.day, a.at, a.lasts, len(a.items)),
            (
                {"k": [1, {"x": None}]},
                ["u", "v"],
                [1, 2],
                b"\0\xff",
                dt.date(2024, 2, 29),
                dt.time(1, 2, 3),
                dt.timedelta(days=1, hours=2),
                20,
            ),
        )
        a.data["k"].append(3)
        a.name = "aa"
        a.tags.append("w")
    with orm.db_session:
        equal(Shop.get(name="aa").data["k"][2], 3)
    with raises(orm.TransactionIntegrityError), orm.db_session:
        Shop(name="b")


@step
def queries():
    with orm.db_session:
        equal(
            sorted(orm.select((s.name, orm.count(s.items), orm.sum(s.items.price)) for s in Shop))[
                1
            ][:2],
            ("b", 1),
        )
        equal(
            orm.select(i for i in Item if i.price > 2 and i.shop.name.startswith("a")).count(), 12
        )
        equal(orm.max(i.price for i in Item), Decimal("5.00"))
        equal(len(orm.select(i for i in Item).order_by(orm.desc(Item.price))[2:7]), 5)
        equal(orm.select(s for s in Shop if s.data["k"][0] == 1).count(), 1)
        equal(orm.select(s for s in Shop if "u" in s.tags).count(), 1)
        equal(
            orm.select(s for s in Shop if orm.exists(i for i in s.items if i.price == 5)).count(), 1
        )
        equal(orm.select(s.opened.year for s in Shop).first(), 2024)
        equal(orm.avg(i.price for i in Item) > 2, True)
        equal(orm.select(i.shop for i in Special).first().name, "b")
        equal(orm.group_concat(s.name for s in Shop if s.name == "b"), "b")
        equal(Item.select(lambda i: i.name in ("i1", "i2")).count(), 2)
        equal(len(Item.select().prefetch(Shop)[:]), 21)
        equal(orm.select(i for i in Item if orm.raw_sql("i.price > 4")).count(), 4)
        equal(db.select("select count(*) from item")[0], 21)
        equal(orm.select(i for i in Item if i.weight is None).without_distinct().count(), 21)
        equal(Item.select_by_sql("SELECT * FROM item ORDER BY id LIMIT 1")[0].name, "i1")
        Item.get_for_update(name="i1").price = 7
        equal(orm.delete(i for i in Item if i.name == "i2"), 1)
        equal(Item.select(lambda i: i.name == "i3").delete(bulk=True), 1)
        equal(len(Item.select_random(3)), 3)


@step
def optimistic():
    with orm.db_session:
        item = Item.get(name="i5")
        price = item.price
        other = __import__("psycopg2").connect(
            host=AT["host"], port=AT["port"], user=AT["user"], dbname=AT["database"]
        )
        other.autocommit = True
        other.cursor().execute("UPDATE item SET price = 99 WHERE name = 'i5'")
        other.close()
        item.price = price + 1
        with raises(Exception):
            orm.flush()
        orm.rollback()


@step
def drop():
    db.drop_all_tables(with_all_data=True)
    db.create_tables()
    db.disconnect()


run()
