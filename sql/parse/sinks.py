"""Parse CREATE SINK."""

from foreshore.errors import FeatureNotSupported
from foreshore.sql import ast
from foreshore.sql.parse.kafka_sinks import KafkaSinkParser
from foreshore.sql.parse.webhook_sinks import WebhookSinkParser


class SinkParser(KafkaSinkParser, WebhookSinkParser):
    """Parse statements about sinks."""

    def _create_sink(self) -> ast.StatementSyntax:
        at = self.last_end
        if_not_exists = self._if_not_exists()
        return self._sink_called(self.table_name(), if_not_exists, at)

    def _sink_called(self, name: ast.TableRef, if_not_exists: bool, at: int) -> ast.StatementSyntax:
        """Parse what follows the name of a sink."""
        cluster = self.name() if self.accept("in", "cluster") else None
        self.expect("from")
        relation = self.table_name()
        self.expect("into")
        target = self._target()
        key = None
        if self.at_word("key") and not self.at_words("key", "format"):
            key = self._sink_key()
        messages = self._sink_messages()
        says = self.accept("envelope") or self.accept("mode")
        envelope = self._sink_envelope() if says else None
        options = self._source_options() if self.accept("with") else ()
        return ast.CreateSinkStatement(
            name, cluster, relation, target, key, messages, envelope, options, if_not_exists, at
        )

    def wait_for_sinks(self) -> ast.StatementSyntax:
        """Parse WAIT FOR SINKS and WAIT FOR ALL SINKS."""
        self.expect("wait", "for")
        if self.accept("all", "sinks"):
            return ast.WaitForSinksStatement(None, self.as_of())
        if not self.accept("sink"):
            self.expect("sinks")
        return ast.WaitForSinksStatement(self.list_of(self.table_name), self.as_of())

    def _target(self) -> ast.TargetSyntax:
        """Parse where it writes: each kind of external system has its own form."""
        at = self.token.start
        if self.accept("postgres"):
            self.expect("connection")
            return ast.PostgresTargetSyntax(self.table_name(), self._source_options(), at)
        if self.accept("delta"):
            return ast.PlaceTargetSyntax("delta", self._source_options(), at)
        if self.accept("files"):
            return ast.PlaceTargetSyntax("files", self._source_options(), at)
        if self.accept("kafka"):
            self.expect("connection")
            return self._kafka_target(at)
        if self.accept("python"):
            return ast.PythonTargetSyntax(self.string(), self._source_options(), at)
        if self.accept("webhook"):
            return self._webhook_target(at)
        if self.accept("iceberg", "catalog", "connection"):
            return self._iceberg(at)
        if self.at_word("iceberg") and self.peek(1).value in ("(", "table"):
            raise FeatureNotSupported(
                "sinks to Iceberg tables without a catalog are not supported",
                hint="Only a catalog lets one of two writers win: use INTO ICEBERG CATALOG"
                " CONNECTION, of type REST for example, or a Delta table, INTO DELTA (URL ...).",
                position=at + 1,
            )
        self.fail(
            hint="A sink writes INTO POSTGRES CONNECTION, KAFKA CONNECTION, DELTA, FILES,"
            " ICEBERG CATALOG CONNECTION, WEBHOOK or PYTHON."
        )

    def _sink_key(self) -> ast.SinkKey:
        at = self.expect("key").start
        columns = self.in_parentheses(self.name)
        return ast.SinkKey(columns, not self.accept("not", "enforced"), at)

    def _sink_envelope(self) -> ast.SinkEnvelope:
        if self.accept("upsert"):
            return "upsert"
        if self.accept("debezium"):
            return "debezium"
        if self.accept("append"):
            return "append"
        self.fail()
