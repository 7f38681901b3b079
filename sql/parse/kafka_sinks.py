"""Parse KAFKA CONNECTION as the target of a sink, and the formats of its messages."""

from foreshore.errors import SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.sources import SourceParser


class KafkaSinkParser(SourceParser):
    """Parse what a Kafka sink writes."""

    def _kafka_target(self, at: int) -> ast.KafkaTargetSyntax:
        """Parse what follows KAFKA CONNECTION."""
        connection = self.table_name()
        found: tuple[ast.SourceOption | ast.PartitionBySyntax, ...] = ()
        if self.at_symbol("("):
            found = self.in_parentheses(self._topic_option)
        options = tuple(each for each in found if isinstance(each, ast.SourceOption))
        hashes = [each for each in found if isinstance(each, ast.PartitionBySyntax)]
        if len(hashes) > 1:
            raise SyntaxError_("conflicting or redundant options", position=hashes[1].at + 1)
        return ast.KafkaTargetSyntax(connection, options, hashes[0] if hashes else None, at)

    def _topic_option(self) -> ast.SourceOption | ast.PartitionBySyntax:
        """Parse an option; `TOPIC CONFIG MAP['name' => 'value', ...]` is a list of name=value."""
        at = self.token.start
        if self.accept("partition", "by"):
            self.accept_symbol("=")
            begins = self.token.start
            expression, text = self._expression_with_text()
            return ast.PartitionBySyntax(expression, text, begins)
        if not self.accept("topic", "config"):
            return self._source_option()
        self.accept_symbol("=")
        self.expect("map")
        self.expect_symbol("[")
        pairs = () if self.at_symbol("]") else self.list_of(self._topic_setting)
        self.expect_symbol("]")
        return ast.SourceOption("topic config", pairs, at)

    def _topic_setting(self) -> str:
        name = self.string()
        if not self.accept_symbol("=>"):
            self.expect_symbol("=")
            self.expect_symbol(">")
        return f"{name}={self.string()}"

    def _sink_messages(self) -> ast.SinkMessagesSyntax | None:
        """Parse HEADERS and formats; None if there are none."""
        at = self.token.start
        headers = self.name() if self.accept("headers") else None
        key, value = None, None
        if self.accept("key", "format"):
            key = self._format()
            self.expect("value", "format")
            value = self._format()
        elif self.accept("format"):
            value = self._format()
        if headers is None and value is None:
            return None
        return ast.SinkMessagesSyntax(headers, key, value, at)
