"""EXPLAIN: what is explained, whether it is run, and how it is shown."""

from abc import abstractmethod

from foreshore.errors import SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.changes import ChangeParser

_STAGES = {
    ("optimized", "plan"): "optimized",
    ("physical", "plan"): "physical",
    ("decorrelated", "plan"): "decorrelated",
    ("locally", "optimized", "plan"): "local",
    ("raw", "plan"): "raw",
    ("plan",): "optimized",
    ("timestamp",): "timestamp",
    ("freshness",): "freshness",
    ("filter", "pushdown"): "pushdown",
}
_MAINTAINED = (("materialized", "view"), ("view",), ("index",))
_MEASURES = ("memory", "cpu")
# Options of PostgreSQL that say how much is shown; all that there is is shown anyhow.
_WITHOUT_EFFECT = ("verbose", "costs", "timing", "summary", "buffers", "wal", "settings", "memory")


class ExplainParser(ChangeParser):
    """Parses EXPLAIN."""

    @abstractmethod
    def _statement(self) -> ast.StatementSyntax:
        """Parse the statement that is explained."""

    @abstractmethod
    def _explained_sink(self) -> ast.StatementSyntax:
        """Parse `CREATE SINK ...`, perhaps without the sink's name."""

    def _explain(self) -> ast.ExplainStatement:
        at = self.expect("explain").start
        for part in ("key", "value"):
            if self.accept(part, "schema"):
                self.accept("as", "json")
                self.expect("for")
                return ast.ExplainStatement(f"{part} schema", self._explained_sink(), at)
        if self.at_symbol("("):
            analyze, json = self._explain_options()
            return ast.ExplainStatement("optimized", self._statement(), at, analyze, json)
        if self.accept("analyze") or self.accept("analyse"):
            if self.at_word(*_MEASURES) and not self.at_words(self.token.value, "."):
                return self._explain_operators(at)
            self.accept("verbose")
            return ast.ExplainStatement("optimized", self._statement(), at, True)
        if self.at_word("cost") and not self.at_words("cost", "."):
            self.advance()
            self.accept("for")
            return ast.ExplainStatement("cost", self._statement(), at)
        self.accept("verbose")
        self.accept("broken")
        stage, named = "optimized", False
        for words, name in _STAGES.items():
            if self.accept(*words):
                stage, named = name, True
                break
        json = self._explain_form()
        if not self.accept("for") and named:
            self.fail()
        self.accept("broken")
        self.accept("replan")
        for words in _MAINTAINED:
            if self.at_words(*words):
                kind = " ".join(words)
                if stage in ("timestamp", "cost"):
                    self.unsupported(f"EXPLAIN {stage.upper()} FOR {kind.upper()}", at)
                self.accept(*words)
                of = ast.ObjectRef(kind, self.table_name())
                return ast.ExplainStatement(stage, of, at, json=json)
        return ast.ExplainStatement(stage, self._statement(), at, json=json)

    def _explain_form(self) -> bool:
        """Parse `[WITH (option, ...)] [AS [VERBOSE] TEXT | JSON]`; return whether it is JSON.

        The options of Materialize say how much is shown: all is.
        """
        json = False
        if self.at_word("with") and self.peek().value == "(":
            self.advance()
            depth = 0
            while not self.at_end():
                depth += self.at_symbol("(") - self.at_symbol(")")
                self.advance()
                if depth == 0:
                    break
        if self.accept("as"):
            self.accept("verbose")
            json = self.accept("json")
            if not (json or self.accept("text")):
                self.unsupported(f"EXPLAIN ... AS {self.token.value.upper()}")
        return json

    def _explain_options(self) -> tuple[bool, bool]:
        """Parse PostgreSQL's options in parentheses; return ANALYZE, and whether FORMAT is JSON."""
        analyze = json = False
        self.expect_symbol("(")
        while True:
            token = self.token
            reserved = next(filter(self.accept, ("analyze", "analyse", "verbose")), None)
            option = reserved or self.name()
            if option == "format":
                form = self.name()
                if form not in ("text", "json"):
                    self.unsupported(f"EXPLAIN (FORMAT {form.upper()})", token.start)
                json = form == "json"
            elif option in ("analyze", "analyse"):
                analyze = self._explain_switch()
            elif option in _WITHOUT_EFFECT:
                self._explain_switch()
            elif option in ("generic_plan", "serialize"):
                self.unsupported(f"EXPLAIN ({option.upper()})", token.start)
            else:
                message = f'unrecognized EXPLAIN option "{option}"'
                raise SyntaxError_(message, position=token.start + 1)
            if not self.accept_symbol(","):
                break
        self.expect_symbol(")")
        return analyze, json

    def _explain_switch(self) -> bool:
        """Parse the value of an option; without one it is on."""
        for word, value in (("true", True), ("on", True), ("false", False), ("off", False)):
            if self.accept(word):
                return value
        if self.at_symbol(",") or self.at_symbol(")"):
            return True
        number = self.token.value
        if number not in ("0", "1"):
            self.fail()
        self.advance()
        return number == "1"

    def _explain_operators(self, at: int) -> ast.ExplainStatement:
        """Parse `MEMORY | CPU, ... [WITH SKEW] FOR MATERIALIZED VIEW | INDEX name`."""
        measures: list[str] = []
        while True:
            measure = self.token.value
            if not self.at_word(*_MEASURES):
                self.fail()
            self.advance()
            measures.append(measure)
            if not self.accept_symbol(","):
                break
        skew = self.accept("with", "skew")
        self.expect("for")
        for words in (("materialized", "view"), ("index",)):
            if self.accept(*words):
                named = ast.ObjectRef(" ".join(words), self.table_name())
                return ast.ExplainStatement(
                    "analyze", named, at, measures=tuple(dict.fromkeys(measures)), skew=skew
                )
        self.unsupported("EXPLAIN ANALYZE of anything but a materialized view or an index")
