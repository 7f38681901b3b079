"""The planned definitions of items, and how views stand on one another.

A view is planned from its own text: where that names another view, its `body` reads that view by
its id. So the plan of a view costs what its text costs, however deep the stack below it. Whoever
reads or maintains the view takes `definition`, its relation over collections. That is made at the
first use, of all bodies below at once, and kept.

    CREATE VIEW v AS SELECT a FROM t WHERE a > 0     body  Filter(Get(t), a > 0)
    CREATE VIEW w AS SELECT a FROM v WHERE a < 9     body  Filter(Get(v), a < 9)
                                               definition  Filter(Get(t), a > 0, a < 9)
"""

from dataclasses import dataclass, field

from foreshore.constraint import Constraint, Unique
from foreshore.domain import Domain
from foreshore.expr.ir import Relation, Scalar
from foreshore.privileges import Need
from foreshore.sequence import Generated, Sequence
from foreshore.sql_function import SqlFunction
from foreshore.types import RelationDesc, SqlType
from foreshore.view_over import ViewOver


@dataclass(frozen=True, slots=True)
class Planned:
    """The planned definition of an item.

    `body` is the lowered relation of a view, a materialized view or a subscription. It is None for
    a table, which has `defaults` and `constraints`. `key` is an index's, over the columns of its
    relation. If `depends_on_zone`, a view's definition is that in UTC, and a reader in another time
    zone has another one.
    """

    desc: RelationDesc
    body: Relation | None = None
    defaults: tuple[Scalar, ...] = ()
    key: tuple[Scalar, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    generated: tuple[Generated | None, ...] = ()  # of a table: its columns that are generated
    computed: tuple[tuple[int, Scalar], ...] = ()  # those that are stored, over the table's row
    sequence: Sequence | None = None
    labels: tuple[str, ...] = ()  # of an enum
    structure: SqlType | None = None  # of a type of records, lists or maps
    domain: Domain | None = None
    function: SqlFunction | None = None
    policy: tuple[Relation, ...] = ()  # of a policy: the rows that satisfy its expressions
    depends_on_zone: bool = False
    needs: tuple[Need, ...] = ()  # of the query of a view or a subscription
    view: ViewOver | None = field(default=None, compare=False)  # of a view
    unique: tuple[Unique, ...] = field(init=False, compare=False)  # among `constraints`

    def __post_init__(self) -> None:
        unique = tuple(each for each in self.constraints if isinstance(each, Unique))
        object.__setattr__(self, "unique", unique)

    @property
    def definition(self) -> Relation | None:
        """The relation of a view, a materialized view or a subscription over collections.

        Raises StatementTooComplex if too many views stand on one another.
        """
        return self.body if self.view is None else self.view.relation()
