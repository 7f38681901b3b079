"""peewee: models, migrations by playhouse, reflection, upserts, pool, server-side cursors."""

import datetime as dt
from decimal import Decimal

from peewee import (
    BigIntegerField,
    BlobField,
    BooleanField,
    CharField,
    Check,
    CompositeKey,
    DateField,
    DateTimeField,
    DecimalField,
    FloatField,
    ForeignKeyField,
    IntegerField,
    IntegrityError,
    ManyToManyField,
    Model,
    SmallIntegerField,
    TextField,
    TimeField,
    UUIDField,
    fn,
)
from playhouse.migrate import PostgresqlMigrator, migrate
from playhouse.pool import PooledPostgresqlDatabase as PooledPostgresqlExtDatabase
from playhouse.postgres_ext import ArrayField, BinaryJSONField, PostgresqlExtDatabase, ServerSide
from playhouse.reflection import Introspector
from steps import equal, parts, raises, run, step

AT = parts()
db = PostgresqlExtDatabase(
    AT["database"], host=AT["host"], port=AT["port"], user=AT["user"], register_hstore=False
)


class Base(Model):
    class Meta:
        database = db


class Shop(Base):
    name = CharField(max_length=40, unique=True)
    opened = DateTimeField(default=lambda: dt.datetime(2024, 1, 2, 3, 4, 5, 6))
    closed = BooleanField(default=False)
    data = BinaryJSONField(default={}, index=False)
    tags = ArrayField(CharField, null=True, index=False)
    raw = BlobField(null=True)
    day = DateField(null=True)
    at = TimeField(null=True)
    small = SmallIntegerField(default=3)
    big = BigIntegerField(null=True)


class Item(Base):
    shop = ForeignKeyField(Shop, backref="items", on_delete="CASCADE")
    name = TextField(index=True)
    price = DecimalField(max_digits=8, decimal_places=2, constraints=[Check("price > 0")])
    weight = FloatField(null=True)
    key = UUIDField(null=True)

    class Meta:
        indexes = ((("shop", "name"), True),)


class Part(Base):
    a = IntegerField()
    b = IntegerField()
    other = IntegerField(null=True)

    class Meta:
        primary_key = CompositeKey("a", "b")


class Tag(Base):
    name = CharField()
    shops = ManyToManyField(Shop, backref="labels")


@step
def create():
    db.connect()
    db.create_tables([Shop, Item, Part, Tag, Tag.shops.get_through_model()])
    db.create_tables([Shop, Item, Part, Tag, Tag.shops.get_through_model()], safe=True)
    equal(sorted(db.get_tables()), ["item", "part", "shop", "tag", "tag_shop_through"])
    assert Shop.table_exists()


@step
def write():
    with db.atomic():
        a = Shop.create(
            name="a",
            data={"k": [1, {"x": None}]},
            tags=["u", "v"],
            raw=b"\0\xff",
            day=dt.date(2024, 2, 29),
            at=dt.time(1, 2, 3),
        )
        b = Shop.create(name="b")
        Item.insert_many(
            [
                {"shop": a, "name": f"i{n}", "price": Decimal(n) + Decimal("0.5")}
                for n in range(1, 6)
            ]
        ).execute()
        try:
            with db.atomic():
                Shop.create(name="a")
        except IntegrityError:
            pass
        Item.create(shop=b, name="z", price=1)
    equal(Item.select().count(), 6)
    with raises(IntegrityError), db.atomic():
        Item.create(shop=b, name="y", price=-1)
    shop, made = Shop.get_or_create(name="a")
    equal(
        (shop.raw.tobytes(), shop.data, shop.tags, shop.day, shop.at, made),
        (
            b"\0\xff",
            {"k": [1, {"x": None}]},
            ["u", "v"],
            dt.date(2024, 2, 29),
            dt.time(1, 2, 3),
            False,
        ),
    )


@step
def upsert_and_change():
    Item.insert(shop=1, name="i1", price=7).on_conflict(
        conflict_target=[Item.shop, Item.name], preserve=[Item.price]
    ).execute()
    equal(Item.get(name="i1").price, Decimal("7.00"))
    Item.insert(shop=1, name="i1", price=9).on_conflict(
        conflict_target=[Item.shop, Item.name],
        update={Item.price: Item.price + 1},
        where=(Item.price < 100),
    ).execute()
    equal(Item.get(name="i1").price, Decimal("8.00"))
    Item.insert(shop=1, name="i1", price=9).on_conflict_ignore().execute()
    equal(Item.update(price=Item.price * 2).where(Item.shop == 1).execute(), 5)
    rows = list(
        Item.update(weight=1.5).where(Item.name == "z").returning(Item.id, Item.weight).execute()
    )
    equal(rows[0].weight, 1.5)
    tag = Tag.create(name="t")
    tag.shops.add(list(Shop.select()))
    equal(tag.shops.count(), 2)
    Part.insert_many([(1, 2, None), (1, 3, 4)]).execute()
    equal(Part.get((Part.a == 1) & (Part.b == 3)).other, 4)
    Item.bulk_update([Item(id=1, name="n1"), Item(id=2, name="n2")], fields=[Item.name])


@step
def queries():
    q = (
        Shop.select(Shop.name, fn.COUNT(Item.id).alias("n"), fn.SUM(Item.price).alias("s"))
        .join(Item, "LEFT OUTER JOIN")
        .group_by(Shop.name)
        .having(fn.COUNT(Item.id) > 0)
        .order_by(Shop.name)
    )
    equal([(r.name, r.n) for r in q], [("a", 5), ("b", 1)])
    ranked = Item.select(
        Item.name, fn.RANK().over(partition_by=[Item.shop], order_by=[Item.price.desc()]).alias("r")
    )
    equal(sorted(r.r for r in ranked), [1, 1, 2, 3, 4, 5])
    cte = Item.select(Item.shop, fn.MAX(Item.price).alias("m")).group_by(Item.shop).cte("m")
    q = (
        Shop.select(Shop.name, cte.c.m)
        .join(cte, on=(cte.c.shop_id == Shop.id))
        .with_cte(cte)
        .order_by(Shop.name)
    )
    equal(len(list(q.dicts())), 2)
    equal(Shop.select().where(Shop.data["k"][0] == "1").count() >= 0, True)
    equal(Shop.select().where(Shop.data.contains({"k": [1]})).count(), 1)
    equal(Shop.select().where(Shop.data.has_key("k")).count(), 1)
    equal(Shop.select().where(Shop.tags.contains("u")).count(), 1)
    equal(Item.select().where(Item.name.iregexp("^N")).count(), 2)
    equal(Item.select().where(Item.name.startswith("n") & Item.price.between(0, 100)).count(), 2)
    equal(Shop.select(Shop.opened.year).where(Shop.opened.month == 1).scalar(), 2024)
    equal(fn.date_trunc("day", dt.datetime(2024, 1, 2, 3)) is not None, True)
    with db.atomic():
        equal(len(list(Item.select().order_by(Item.id).for_update("FOR UPDATE"))), 6)
    equal(Item.select().paginate(2, 2).count(), 2)
    union = Item.select(Item.name) | Shop.select(Shop.name)
    equal(len(list(union)), 8)
    equal(Item.select(fn.string_agg(Item.name, ",")).where(Item.shop == 2).scalar(), "z")


@step
def server_side():
    with db.atomic():
        equal(len(list(ServerSide(Item.select()))), 6)


@step
def migrate_tables():
    m = PostgresqlMigrator(db)
    with db.atomic():
        migrate(
            m.add_column("item", "note", CharField(default="", max_length=10)),
            m.add_column(
                "item",
                "maker_id",
                ForeignKeyField(Shop, field=Shop.id, null=True, on_delete="SET NULL"),
            ),
            m.rename_column("item", "weight", "mass"),
            m.drop_not_null("item", "name"),
            m.add_not_null("item", "name"),
            m.add_index("item", ("note", "mass"), False),
            m.alter_column_type("item", "note", TextField()),
            m.add_column_default("item", "note", "x"),
            m.drop_column_default("item", "note"),
            m.add_constraint("item", "mass_ok", Check("mass > 0")),
            m.add_unique("shop", "big"),
        )
    migrate(
        m.drop_constraint("item", "mass_ok"),
        m.rename_table("part", "parts"),
        m.drop_index("item", "item_note_mass"),
        m.drop_column("item", "mass"),
    )
    equal(
        [c.name for c in db.get_columns("item")],
        ["id", "shop_id", "name", "price", "key", "note", "maker_id"],
    )


@step
def reflect():
    print(
        " ",
        [(c.name, c.data_type, c.null, c.primary_key, c.default) for c in db.get_columns("item")],
    )
    print(" ", sorted((i.name, i.columns, i.unique, i.sql) for i in db.get_indexes("item")))
    print(" ", sorted((k.column, k.dest_table, k.dest_column) for k in db.get_foreign_keys("item")))
    print(
        " ",
        db.get_primary_keys("parts"),
        db.sequence_exists("item_id_seq"),
        [v.name for v in db.get_views()],
    )
    models = Introspector.from_database(db).generate_models()
    equal(sorted(models), ["item", "parts", "shop", "tag", "tag_shop_through"])
    for name in sorted(models):
        print(
            " ",
            name,
            {k: type(v).__name__ for k, v in models[name]._meta.fields.items()},
            models[name]._meta.indexes,
        )


@step
def pool():
    pooled = PooledPostgresqlExtDatabase(
        AT["database"],
        host=AT["host"],
        port=AT["port"],
        user=AT["user"],
        max_connections=4,
        stale_timeout=10,
    )
    for _ in range(6):
        with pooled.connection_context():
            equal(pooled.execute_sql("SELECT 1").fetchone(), (1,))
    pooled.close_all()


@step
def drop():
    Shop.truncate_table(cascade=True, restart_identity=True)
    db.drop_tables([Tag.shops.get_through_model(), Tag, Item, Shop], cascade=True)
    db.execute_sql("DROP TABLE parts")
    equal(db.get_tables(), [])
    db.close()


run()
