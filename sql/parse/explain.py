"""EXPLAIN: what is explained, whether it is run, and how it is shown."""

from abc import abstractmethod

from foreshore.errors import SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.changes import ChangeParser

_STAGES = {
    ("optimized", "plan"): "optimized",
    ("physical", "plan"): "physical",
    ("decorrelated", "plan"): "decorrelated",
    ("raw", "plan"): "raw",
    ("plan",): "optimized",
    ("timestamp",): "timestamp",
    ("freshness",): "freshness",
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
        stage = "optimized"
        for words, name in _STAGES.items():
            if self.accept(*words):
                stage = name
                if self.at_word("as", "with"):
                    self.unsupported(f"EXPLAIN ... {self.token.value.upper()}")
                self.expect("for")
                break
        for words in _MAINTAINED:
            if self.at_words(*words):
                kind = " ".join(words)
                maintained = ("materialized view", "index")
                if stage != "freshness" and not (stage == "physical" and kind in maintained):
                    self.unsupported(f"EXPLAIN {stage.upper()} PLAN FOR {kind.upper()}", at)
                self.accept(*words)
                return ast.ExplainStatement(stage, ast.ObjectRef(kind, self.table_name()), at)
        return ast.ExplainStatement(stage, self._statement(), at)

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
