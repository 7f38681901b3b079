"""Expression nodes that sqlglot's tree lacks."""

from sqlglot import exp


class TypeSpelling(exp.Expression):
    """A type as written: name parts, modifiers, dimensions, and fields of an interval."""

    arg_types = {"name": True, "modifiers": False, "dimensions": False, "fields": False}


class ContainerSpelling(exp.Expression):
    """`item list` or `map[text => item]` as written; `key` is the type of a map's keys."""

    arg_types = {"this": True, "key": False, "item": True, "dimensions": False}


class ColumnSpelling(exp.Expression):
    """A column of a column definition list: its name and type."""

    arg_types = {"this": True, "kind": True}


class Container(exp.Expression):
    """`LIST[...]` or `MAP[key => value, ...]`, or one of a query; `this` is its kind."""

    arg_types = {"this": True, "expressions": False, "query": False}


class Quantified(exp.Expression):
    """`left operator ANY|ALL (right)`."""

    arg_types = {"this": True, "operator": True, "kind": True, "expression": True}


class SqlValue(exp.Expression):
    """CURRENT_DATE and similar values."""

    arg_types = {"this": True, "precision": False}


class KeywordCall(exp.Expression):
    """A call that the standard spells with key words, as the PostgreSQL function it calls."""

    arg_types = {"this": True, "expressions": True}


class CallArguments(exp.Expression):
    """The contents of the parentheses of a call by name."""

    arg_types = {
        "expressions": False,
        "distinct": False,
        "variadic": False,
        "order": False,
        "names": False,  # of the last arguments: tokens
    }


class Shown(exp.Expression):
    """A SHOW statement as an item of FROM, from `start` to `end` in the text."""

    arg_types = {"start": True, "end": True, "alias": False}


class TimeWindow(exp.Expression):
    """TUMBLE, HOP or SESSION in FROM: a relation and arguments, of which the last have names."""

    arg_types = {
        "kind": True,
        "input": True,
        "partition": False,
        "expressions": True,
        "names": False,
        "alias": False,
    }


class AutoCdc(exp.Expression):
    """AUTO_CDC in FROM: a feed of changes and its clauses; choices are `ColumnChoice`."""

    arg_types = {
        "input": True,
        "snapshots": False,
        "keys": True,
        "sequence": True,
        "deletes": False,
        "ignores": False,
        "columns": False,
        "tracked": False,
        "stored": False,
        "alias": False,
    }


class ColumnChoice(exp.Expression):
    """Some columns of a relation, or all but some."""

    arg_types = {"expressions": False, "excluded": True}


class GroupingSets(exp.Expression):
    """An element of GROUP BY: `kind` is sets, rollup or cube; elements may be nested sets."""

    arg_types = {"kind": True, "expressions": False}


class RowOf(exp.Expression):
    """ROW(...)."""

    arg_types = {"expressions": False}


class Over(exp.Expression):
    """A call with OVER."""

    arg_types = {"this": True, "window": True}


class NamedWindow(exp.Expression):
    """`name AS (...)` of the WINDOW clause."""

    arg_types = {"this": True, "window": True}


class WindowSpelling(exp.Expression):
    """The definition of a window; `bare` if it is only a name after OVER."""

    arg_types = {"base": False, "partition": False, "order": False, "frame": False, "bare": False}


class FrameSpelling(exp.Expression):
    """A frame: two bounds, each a side, an offset or None, and its position."""

    arg_types = {"unit": True, "bounds": True, "exclude": True}
