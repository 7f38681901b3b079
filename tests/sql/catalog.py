"""An in-memory catalog of a few tables, for tests of binding."""

from foreshore.catalog.builtin.registry import all_builtins
from foreshore.connection_spec import ConnectionKind
from foreshore.constraint import Unique
from foreshore.domain import Domain
from foreshore.errors import InvalidSchemaName, UndefinedObject, UndefinedTable
from foreshore.expr.ir import Literal, Relation, Scalar
from foreshore.ids import GlobalId
from foreshore.item_view import ItemKind, ItemView, Name
from foreshore.sql.catalog_reader import CatalogReader
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import (
    CreateMaterializedView,
    CreateSubscription,
    CreateTable,
    CreateView,
)
from foreshore.sql.planner import plan_statement
from foreshore.sql_function import SqlFunction
from foreshore.types import Datum, RelationDesc, SqlType

SYSTEM = ("mz_catalog", "pg_catalog")


class TestCatalog:
    """A `CatalogReader` whose items are created by statements given to `run`."""

    __test__ = False

    def __init__(self, *statements: str) -> None:
        self.items: dict[tuple[str, str], ItemView] = {}
        self.schemas = {"public", "other", "pg_temp_1", *SYSTEM}
        for statement in statements:
            self.run(statement)

    @property
    def database(self) -> str:
        """Return the current database."""
        return "foreshore"

    @property
    def keeps_digits(self) -> bool:
        """Return True, as for new definitions."""
        return True

    @property
    def search_path(self) -> tuple[str, ...]:
        """Return the schemas searched."""
        return (*SYSTEM, "public")

    def run(self, text: str) -> None:
        """Execute the CREATE statements of `text`."""
        for statement in parse(text):
            plan = plan_statement(statement, self)
            match plan:
                case CreateTable(name=name, desc=desc, defaults=defaults):
                    self.add("table", name, desc, None, defaults)
                case CreateView(name=name, query=query):
                    self.add("view", name, query.desc, query.relation)
                case CreateSubscription(name=name, query=query):
                    self.add("subscription", name, query.desc, query.relation)
                case CreateMaterializedView(name=name, query=query):
                    self.add("materialized view", name, query.desc)
                case _:
                    raise AssertionError(plan)

    def add(
        self,
        kind: ItemKind,
        name: Name,
        desc: RelationDesc,
        definition: Relation | None = None,
        defaults: tuple[Scalar, ...] = (),
    ) -> None:
        """Add an item to the catalog."""
        assert name.schema is not None
        user = sum(item.kind != "builtin" for item in self.items.values())
        id = GlobalId(f"u{user + 1}")
        defaults = defaults or tuple(Literal(None, c.type) for c in desc.columns)
        self.items[name.schema, name.item] = ItemView(id, kind, name, desc, definition, defaults)

    def keys_of_indexes(self, id: GlobalId) -> tuple[str, ...]:
        """Return nothing: tables have no indexes."""
        return ()

    def nearest_relation(self, parts: tuple[str, ...]) -> str | None:
        """Return None: errors have no hints."""
        return None

    def resolve_item(self, parts: tuple[str, ...]) -> ItemView:
        """Return the item that `parts` name."""
        *qualifier, item = parts
        schemas = (qualifier[-1],) if qualifier else self.search_path
        for schema in schemas:
            if (schema, item) in self.items:
                return self.items[schema, item]
        raise UndefinedTable(f'relation "{".".join(parts)}" does not exist')

    def type_named(self, parts: tuple[str, ...]) -> tuple[GlobalId, SqlType] | None:
        """Return None: there are no types."""
        return None

    def functions_named(self, parts: tuple[str, ...]) -> list[tuple[GlobalId, SqlFunction]]:
        return []

    def within(self, id: GlobalId) -> CatalogReader:
        raise AssertionError(id)

    def secret_named(self, parts: tuple[str, ...]) -> str:
        raise UndefinedObject(f'secret "{parts[-1]}" does not exist')

    def connection_named(self, parts: tuple[str, ...]) -> tuple[str, ConnectionKind]:
        raise UndefinedObject(f'connection "{parts[-1]}" does not exist')

    def domain_named(self, parts: tuple[str, ...]) -> tuple[GlobalId, Domain] | None:
        """Return None: there are no domains."""
        return None

    def item(self, id: GlobalId) -> ItemView:
        """Return the item of that id."""
        return next(item for item in self.items.values() if item.id == id)

    def statement_of(self, id: GlobalId) -> str:
        """Refuse: statements are not kept."""
        raise NotImplementedError

    def definition_of(self, id: GlobalId, *, with_errors: bool = False) -> Relation:
        """Return the definition of a materialized view, none of which leaves out errors."""
        definition = self.item(id).definition
        assert definition is not None, id
        return definition

    def resolve_new(self, parts: tuple[str, ...], *, temporary: bool = False) -> Name:
        """Return the full name of a new item."""
        *qualifier, item = parts
        schema = qualifier[-1] if qualifier else "pg_temp_1" if temporary else "public"
        if schema not in self.schemas:
            raise InvalidSchemaName(f'schema "{schema}" does not exist')
        return Name(None if schema in SYSTEM else self.database, schema, item)

    def is_taken(self, name: Name) -> bool:
        """Return whether an item has that name."""
        return (name.schema, name.item) in self.items

    def find_key(self, parts: tuple[str, ...]) -> tuple[ItemView, Unique] | None:
        """Return the table that has a key of that name, and the key."""
        for item in self.items.values():
            for each in item.constraints:
                if isinstance(each, Unique) and each.name == parts[-1]:
                    return item, each
        return None

    def session_value(self, name: str) -> Datum:
        """Raise: there is no session."""
        raise AssertionError(name)

    def cluster_exists(self, name: str) -> bool:
        """Return whether the cluster exists."""
        return name == "quickstart"


def builtin_catalog(*statements: str) -> TestCatalog:
    """Return a catalog that includes the builtin relations."""
    catalog = TestCatalog()
    catalog.schemas |= {"information_schema", "mz_internal"}
    for each in all_builtins():
        name = Name(None, each.schema, each.name)
        catalog.items[each.schema, each.name] = ItemView(each.id, "builtin", name, each.desc)
    for statement in statements:
        catalog.run(statement)
    return catalog


TABLES = """
CREATE TABLE t (a int, b text, c numeric(10, 2), d date, e bool);
CREATE TABLE u (a int NOT NULL, x float8, y timestamptz, z int[], j jsonb, s varchar(5) DEFAULT 'q');
CREATE TABLE customer (c_custkey int NOT NULL, c_name text, c_mktsegment char(10));
CREATE TABLE orders (o_orderkey int NOT NULL, o_custkey int, o_orderdate date, o_shippriority int);
CREATE TABLE lineitem (l_orderkey int, l_extendedprice numeric(15, 2), l_discount numeric(15, 2),
                       l_shipdate date, l_quantity numeric(15, 2));
CREATE SUBSCRIPTION followed FOR t;
"""
