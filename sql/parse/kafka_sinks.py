"""Parse KAFKA CONNECTION as the target of a sink, and the formats of its messages."""

from foreshore.sql import ast
from foreshore.sql.parse.sources import SourceParser


class KafkaSinkParser(SourceParser):
    """Parse what a Kafka sink writes."""

    def _kafka_target(self, at: int) -> ast.KafkaTargetSyntax:
        """Parse what follows KAFKA CONNECTION."""
        connection = self.table_name()
        options: tuple[ast.SourceOption, ...] = ()
        if self.at_symbol("("):
            options = self.in_parentheses(self._topic_option)
        return ast.KafkaTargetSyntax(connection, options, at)

    def _topic_option(self) -> ast.SourceOption:
        """Parse an option; `TOPIC CONFIG MAP['name' => 'value', ...]` is a list of name=value."""
        at = self.token.start
        if self.at_words("partition", "by"):
            self.unsupported("PARTITION BY", at)
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
