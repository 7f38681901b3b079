"""The condition of a webhook: planned like a CHECK of a table of its inputs."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.constraint import Check
from foreshore.errors import FeatureNotSupported, InsufficientPrivilege, InvalidParameterValue
from foreshore.expr.evaluate import outcome
from foreshore.expr.ir import Scalar
from foreshore.sources.webhook import WebhookSource, input_type
from foreshore.sql.catalog_reader import CatalogReader
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import CreateTable
from foreshore.sql.planner import plan_statement
from foreshore.types import SqlType, arrow_type


class EmptySecret(InsufficientPrivilege):
    """A webhook takes no request, as anybody knows the value of a secret of its check.

    The message is for who sends, and does not name the secret.
    """

    def __init__(self, secret: str) -> None:
        super().__init__("the webhook takes no requests until its owner has set it up")
        self.secret = secret  # its id


def check_secrets(secrets: Mapping[str, bytes]) -> None:
    """Raise EmptySecret if the value of a secret is empty."""
    for secret, value in secrets.items():
        if not value:
            raise EmptySecret(secret)


class Condition:
    """What decides which requests of a webhook are accepted."""

    def __init__(self, condition: Scalar, types: Sequence[SqlType]) -> None:
        self._condition = condition
        self.types = types  # of the inputs

    def refused(self, inputs: Sequence[pa.Array], rows: int) -> Mapping[int, Exception]:
        """Return the errors of the rows for which the condition is not true."""
        accepted, errors = outcome(self._condition, inputs, rows)
        found: dict[int, Exception] = {}
        for row in pc.indices_nonzero(pc.invert(pc.fill_null(accepted, False))).to_pylist():
            found[row] = InsufficientPrivilege("the request does not pass the check of the webhook")
        if errors is not None:
            for row in pc.indices_nonzero(errors.is_valid()).to_pylist():
                found[row] = InvalidParameterValue("the check of the webhook has failed")
        return found

    def array(self, values: Sequence[object], column: int) -> pa.Array:
        """Return values of an input."""
        return pa.array(values, arrow_type(self.types[column]))


def check_condition(reader: CatalogReader, spec: WebhookSource) -> None:
    """Raise DatabaseError if the condition of a webhook to be created is wrong."""
    if spec.check:
        condition_of(reader, spec)


def condition_of(reader: CatalogReader, spec: WebhookSource) -> Condition:
    """Return the condition of a webhook; raises DatabaseError if it is wrong."""
    columns = [f"{quote_identifier(each.column)} {input_type(each)}" for each in spec.inputs]
    (syntax,) = parse(f"CREATE TABLE request ({', '.join(columns)}, CHECK ({spec.check}))")
    plan = plan_statement(syntax, reader)
    assert isinstance(plan, CreateTable), plan
    if plan.depends_on:
        raise FeatureNotSupported("CHECK of a webhook can only use functions of the system")
    (check,) = (each for each in plan.constraints if isinstance(each, Check))
    return Condition(check.condition, [each.type for each in plan.desc.columns])
