"""SQLAlchemy 2: Core, ORM, reflection and Alembic's autogenerate, over each driver."""

import asyncio
import datetime as dt
import decimal
import enum
import uuid

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from steps import equal, raises, run, step, url

DRIVERS = ("psycopg", "psycopg2", "pg8000")


class Mood(enum.Enum):
    low = 1
    high = 2


class Base(orm.DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(40), unique=True)
    born: orm.Mapped[dt.datetime | None] = orm.mapped_column(sa.DateTime(timezone=True))
    made: orm.Mapped[dt.datetime] = orm.mapped_column(server_default=sa.func.now())
    mood: orm.Mapped[Mood] = orm.mapped_column(sa.Enum(Mood, name="author_mood"))
    about: orm.Mapped[dict] = orm.mapped_column(pg.JSONB)
    tags: orm.Mapped[list[str]] = orm.mapped_column(pg.ARRAY(sa.Text))
    key: orm.Mapped[uuid.UUID]
    books: orm.Mapped[list["Book"]] = orm.relationship(
        back_populates="author", cascade="all, delete-orphan"
    )


class Book(Base):
    __tablename__ = "book"
    __table_args__ = (
        sa.Index("book_by_title", "title", "author_id"),
        sa.CheckConstraint("price > 0", name="book_price"),
        {"comment": "what is sold"},
    )
    id: orm.Mapped[int] = orm.mapped_column(sa.Identity(), primary_key=True)
    title: orm.Mapped[str] = orm.mapped_column(sa.Text, comment="on the cover")
    price: orm.Mapped[decimal.Decimal] = orm.mapped_column(sa.Numeric(10, 2), server_default="1")
    data: orm.Mapped[bytes | None]
    author_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("author.id", ondelete="CASCADE"))
    author: orm.Mapped[Author] = orm.relationship(back_populates="books")


def address(driver: str) -> str:
    return url().replace("postgres://", f"postgresql+{driver}://")


def author(name: str, **given) -> Author:
    fields = {"mood": Mood.high, "about": {"k": [1]}, "tags": ["a", "b"], "key": uuid.UUID(int=5)}
    return Author(name=name, **fields, **given)


def orm_work(driver: str) -> None:
    engine = sa.create_engine(address(driver), pool_pre_ping=True)
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    Base.metadata.create_all(engine)
    born = dt.datetime(1920, 1, 1, tzinfo=dt.UTC)
    with orm.Session(engine) as session:
        session.add(
            author("Ann", born=born, books=[Book(title="One", data=b"\0"), Book(title="Two")])
        )
        session.add_all([author(f"n{i}") for i in range(20)])
        session.commit()
        found = session.scalars(
            sa.select(Author).options(orm.selectinload(Author.books)).where(Author.name == "Ann")
        ).one()
        equal((found.born, found.mood, found.about, found.tags, found.key),
              (born, Mood.high, {"k": [1]}, ["a", "b"], uuid.UUID(int=5)))  # fmt: skip
        equal(sorted((b.title, b.price) for b in found.books),
              [("One", decimal.Decimal(1)), ("Two", decimal.Decimal(1))])  # fmt: skip
        found.about = {"k": 2}
        found.books.pop()
        session.flush()
        with raises(sa.exc.IntegrityError), session.begin_nested():
            session.add(author("Ann"))
            session.flush()
        session.commit()
        rows = session.execute(
            sa.select(Author.name, sa.func.count(Book.id).label("n"))
            .outerjoin(Author.books)
            .where(
                Author.name == "Ann",
                Author.about["k"].as_string() == "2",
                Author.tags.contains(["a"]),
            )
            .group_by(Author.name)
            .order_by(sa.desc("n"), Author.name)
        ).all()
        equal([tuple(row) for row in rows], [("Ann", 1)])
        session.execute(
            sa.update(Author).where(Author.name.like("n%")).values(name=Author.name + "x")
        )
        session.execute(sa.delete(Author).where(Author.name.in_(["n1x", "n2x"])))
        session.commit()
        session.delete(found)
        session.commit()
        equal(session.scalar(sa.select(sa.func.count()).select_from(Book)), 0)
    engine.dispose()


def core_work(driver: str) -> None:
    engine = sa.create_engine(address(driver), isolation_level="SERIALIZABLE")
    table = sa.Table(
        "core", sa.MetaData(),
        sa.Column("i", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("t", sa.Unicode(30)), sa.Column("f", sa.Float), sa.Column("at", sa.Time),
        sa.Column("d", sa.Date, server_default=sa.text("CURRENT_DATE")), sa.Column("v", sa.Interval),
    )  # fmt: skip
    table.drop(engine, checkfirst=True)
    table.create(engine)
    rows = [
        {"i": i, "t": f"t{i}", "f": i / 2, "at": dt.time(1, i % 60), "v": dt.timedelta(i)}
        for i in range(300)
    ]
    with engine.begin() as c:
        c.execute(table.insert(), rows)
        upsert = pg.insert(table).values(i=1, t="again").on_conflict_do_update(
            index_elements=["i"], set_={"t": sa.text("excluded.t")}
        )  # fmt: skip
        c.execute(upsert)
        found = c.execute(
            pg.insert(table).returning(table.c.i, table.c.d), [{"i": 1000}, {"i": 1001}]
        ).all()
        equal(sorted(row.i for row in found), [1000, 1001])
        row = (
            c.execute(sa.select(table).where(table.c.i == sa.bindparam("x")), {"x": 1})
            .mappings()
            .one()
        )
        equal(
            [row[n] for n in ("t", "f", "at", "v")], ["again", 0.5, dt.time(1, 1), dt.timedelta(1)]
        )
    with engine.connect() as c:
        ranked = sa.select(
            table.c.i, sa.func.rank().over(partition_by=table.c.at, order_by=table.c.f).label("r")
        ).cte("ranked")
        equal(c.scalar(sa.select(sa.func.count()).select_from(ranked).where(ranked.c.r == 1)), 62)
        with c.execution_options(yield_per=50, stream_results=True).execute(
            sa.select(table.c.i).order_by(table.c.i)
        ) as result:
            equal(sum(len(part) for part in result.partitions()), 302)
        equal(c.get_isolation_level(), "SERIALIZABLE")
        with raises(sa.exc.ProgrammingError):
            c.execute(sa.text("SELECT * FROM nowhere"))
        c.rollback()
    engine.dispose()


def reflection(driver: str) -> None:
    engine = sa.create_engine(address(driver))
    with engine.begin() as c:
        c.execute(sa.text("CREATE VIEW dear AS SELECT title FROM book WHERE price > 100"))
    found = sa.inspect(engine)
    equal(found.get_pk_constraint("book")["constrained_columns"], ["id"])
    (key,) = found.get_foreign_keys("book")
    equal((key["name"], key["referred_table"], key["options"]),
          ("book_author_id_fkey", "author", {"ondelete": "CASCADE"}))  # fmt: skip
    (unique,) = found.get_unique_constraints("author")
    equal((unique["name"], unique["column_names"]), ("author_name_key", ["name"]))
    (check,) = found.get_check_constraints("book")
    equal(check["name"], "book_price")
    equal(found.get_table_comment("book"), {"text": "what is sold"})
    (index,) = [i for i in found.get_indexes("book") if i["name"] == "book_by_title"]
    equal((index["column_names"], index["unique"]), (["title", "author_id"], False))
    columns = {column["name"]: column for column in found.get_columns("book")}
    equal((columns["title"]["comment"], columns["title"]["nullable"]), ("on the cover", False))
    assert columns["id"]["identity"]["always"] is False
    equal(str(columns["price"]["type"]), "NUMERIC(10, 2)")
    equal([e["name"] for e in found.get_enums()], ["author_mood"])
    equal(found.get_view_names(), ["dear"])
    metadata = sa.MetaData()
    metadata.reflect(engine, views=True)
    assert {"author", "book", "dear"} <= set(metadata.tables)
    assert isinstance(metadata.tables["author"].c.about.type, pg.JSONB)
    assert isinstance(metadata.tables["author"].c.tags.type, pg.ARRAY)
    with engine.begin() as c:
        c.execute(sa.text("DROP VIEW dear"))
    engine.dispose()


for _driver in DRIVERS:
    for _work in (core_work, orm_work, reflection):

        def _step(work=_work, driver=_driver):
            work(driver)

        _step.__name__ = f"{_work.__name__}_over_{_driver}"
        step(_step)


@step
async def orm_over_asyncpg():
    engine = create_async_engine(address("asyncpg"))
    async with engine.begin() as c:
        await c.run_sync(Base.metadata.drop_all)
        await c.run_sync(Base.metadata.create_all)
    async with async_sessionmaker(engine)() as session:
        session.add(author("Ann", books=[Book(title="One")]))
        await session.commit()
        found = (
            await session.scalars(sa.select(Author).options(orm.selectinload(Author.books)))
        ).one()
        equal([b.title for b in found.books], ["One"])
        async with engine.connect() as c:
            result = await c.stream(sa.text("SELECT generate_series(1, 1000)"))
            equal(sum([1 async for _ in result]), 1000)
            await c.run_sync(sa.MetaData().reflect)
    await asyncio.wait_for(engine.dispose(), 10)


@step
def alembic_autogenerates_nothing_for_its_own_schema():
    from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    engine = sa.create_engine(address("psycopg"))
    Base.metadata.drop_all(engine)
    with engine.begin() as c:
        c.execute(sa.text("DROP TABLE IF EXISTS core"))
        context = MigrationContext.configure(
            c, opts={"compare_type": True, "compare_server_default": True}
        )
        code = render_python_code(produce_migrations(context, Base.metadata).upgrade_ops)
        assert "create_table('author'" in code and "create_index" in code, code
    Base.metadata.create_all(engine)
    with engine.begin() as c:
        context = MigrationContext.configure(
            c, opts={"compare_type": True, "compare_server_default": True}
        )
        equal(compare_metadata(context, Base.metadata), [])
        op = Operations(context)
        op.add_column("book", sa.Column("pages", sa.Integer(), nullable=True))
        op.alter_column("book", "title", new_column_name="name", type_=sa.String(200))
        op.alter_column("book", "pages", type_=sa.BigInteger(), server_default="0")
        op.create_unique_constraint("book_name", "book", ["name"])
        op.drop_constraint("book_price", "book", type_="check")
        op.rename_table("book", "books")
        kinds = sorted(
            d[0] if isinstance(d, tuple) else "modify"
            for d in compare_metadata(context, Base.metadata)
        )
        assert {"add_table", "remove_table"} <= set(kinds), kinds


if __name__ == "__main__":
    run()
