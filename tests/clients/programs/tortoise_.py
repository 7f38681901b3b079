"""Tortoise ORM over asyncpg: schemas, relations, aggregates, transactions, upserts, raw queries."""

import datetime as dt
import enum
import uuid
from decimal import Decimal

from steps import equal, raises, run, step, url
from tortoise import Tortoise, fields
from tortoise.exceptions import IntegrityError
from tortoise.expressions import F, Q, Subquery
from tortoise.functions import Avg, Count, Max, Sum
from tortoise.indexes import Index
from tortoise.models import Model
from tortoise.transactions import in_transaction


class Kind(enum.StrEnum):
    small = "small"
    large = "large"


class Shop(Model):
    id = fields.IntField(primary_key=True)
    name = fields.CharField(50, unique=True, description="full name")
    kind = fields.CharEnumField(Kind, default=Kind.small)
    opened = fields.DatetimeField(auto_now_add=True)
    data = fields.JSONField(default=dict)
    day = fields.DateField(null=True)
    open_for = fields.TimeDeltaField(null=True)
    blob = fields.BinaryField(null=True)
    ok = fields.BooleanField(default=True)
    items: fields.ReverseRelation["Item"]

    class Meta:
        table_description = "the shops"


class Tag(Model):
    id = fields.UUIDField(primary_key=True)
    name = fields.TextField()
    shops: fields.ManyToManyRelation[Shop] = fields.ManyToManyField(
        "models.Shop", related_name="tags"
    )


class Item(Model):
    id = fields.BigIntField(primary_key=True)
    shop: fields.ForeignKeyRelation[Shop] = fields.ForeignKeyField(
        "models.Shop", related_name="items", on_delete=fields.CASCADE
    )
    name = fields.CharField(30, db_index=True)
    price = fields.DecimalField(10, 2)
    weight = fields.FloatField(null=True)
    small = fields.SmallIntField(default=1)

    class Meta:
        unique_together = (("shop", "name"),)
        indexes = (Index(fields=("price", "name")),)


async def begin():
    await Tortoise.init(
        db_url=url().replace("postgres://", "asyncpg://"), modules={"models": ["__main__"]}
    )


def with_tortoise(function):
    async def go():
        await begin()
        try:
            await function()
        finally:
            await Tortoise.close_connections()

    go.__name__ = function.__name__
    return step(go)


@with_tortoise
async def schemas():
    await Tortoise.generate_schemas(safe=False)
    await Tortoise.generate_schemas(safe=True)


@with_tortoise
async def write():
    a = await Shop.create(
        name="a",
        data={"k": [1, None]},
        day=dt.date(2024, 2, 29),
        open_for=dt.timedelta(hours=3),
        blob=b"\0\xff",
        kind=Kind.large,
    )
    b = await Shop.create(name="b")
    await Item.bulk_create(
        [Item(shop=a, name=f"i{n}", price=Decimal(n) + Decimal("0.25")) for n in range(1, 41)],
        batch_size=15,
    )
    await Item.create(shop=b, name="z", price=1)
    with raises(IntegrityError):
        await Shop.create(name="a")
    tag = await Tag.create(name="t")
    await tag.shops.add(a, b)
    shop = await Shop.get(name="a").prefetch_related("items", "tags")
    equal(
        (shop.data, shop.day, shop.open_for, shop.blob, shop.kind, len(shop.items), len(shop.tags)),
        (
            {"k": [1, None]},
            dt.date(2024, 2, 29),
            dt.timedelta(hours=3),
            b"\0\xff",
            Kind.large,
            40,
            1,
        ),
    )
    shop, made = await Shop.get_or_create(name="c")
    equal(made, True)
    shop, made = await Shop.update_or_create(defaults={"ok": False}, name="c")
    equal(made, False)
    await Shop.bulk_create(
        [Shop(name="c", ok=True), Shop(name="d")], on_conflict=["name"], update_fields=["ok"]
    )
    equal(await Shop.all().count(), 4)
    await Shop.bulk_create([Shop(name="c")], ignore_conflicts=True)
    equal(await Item.filter(price__gt=39).update(price=F("price") + 1), 2)
    equal(await Item.filter(name="i40").delete(), 1)
    items = await Item.filter(name__in=["i1", "i2"])
    for item in items:
        item.weight = 2.5
    equal(await Item.bulk_update(items, fields=["weight"]), 2)


@with_tortoise
async def queries():
    found = (
        await Shop.annotate(n=Count("items"), s=Sum("items__price"), m=Max("items__price"))
        .filter(n__gt=0)
        .order_by("name")
        .values("name", "n", "s", "m")
    )
    equal([(r["name"], r["n"]) for r in found], [("a", 39), ("b", 1)])
    equal(await Item.filter(Q(name__icontains="I3") | Q(shop__name="b")).count(), 12)
    equal(await Item.filter(name__istartswith="I1").count(), 11)
    equal(await Item.filter(shop__tags__name="t").distinct().count(), 40)
    equal(await Shop.filter(data__contains={"k": [1]}).count(), 1)
    equal(await Shop.filter(data__filter={"k__0": 1}).count() in (0, 1), True)
    equal(len(await Item.all().order_by("-price", "name").limit(3).offset(1)), 3)
    equal(await Item.filter(shop_id__in=Subquery(Shop.filter(name="b").values("id"))).count(), 1)
    equal(
        len(await Item.annotate(avg=Avg("price")).group_by("shop_id").values("shop_id", "avg")), 2
    )
    equal((await Shop.filter(opened__year=dt.datetime.now(dt.UTC).year).count()), 4)
    equal((await Shop.raw("SELECT * FROM shop WHERE name = 'a'"))[0].name, "a")
    assert "shop" in str(await Shop.filter(name="a").explain())
    equal(await Item.exists(name="z"), True)
    equal((await Shop.get(name="a").only("id", "name")).name, "a")
    equal(len(await Shop.filter(name__posix_regex="^[ab]$")), 2)


@with_tortoise
async def transactions():
    with raises(ZeroDivisionError):
        async with in_transaction() as c:
            await Item.create(shop_id=1, name="gone", price=1, using_db=c)
            raise ZeroDivisionError
    async with in_transaction() as c:
        item = await Item.filter(name="z").using_db(c).select_for_update().get()
        item.price = 5
        await item.save(using_db=c, update_fields=["price"])
        try:
            async with in_transaction() as inner:
                await Item.create(shop_id=2, name="z", price=1, using_db=inner)
        except IntegrityError:
            pass
    equal((await Item.get(name="z")).price, Decimal("5.00"))
    equal(await Item.exists(name="gone"), False)
    _, rows = await Tortoise.get_connection("default").execute_query("SELECT $1::int + 1 AS x", [4])
    equal(rows[0]["x"], 5)
    await Tortoise.get_connection("default").execute_many(
        "INSERT INTO tag (id, name) VALUES ($1, $2)", [[uuid.uuid4(), f"n{i}"] for i in range(30)]
    )
    equal(await Tag.all().count(), 31)


run()
