"""The positions of subscriptions that a write moves."""

from collections.abc import Callable

from foreshore.adapter.transaction.write import Write
from foreshore.catalog.durable import CATALOG_SHARD
from foreshore.catalog.subscription_positions import DurablePositions
from foreshore.update import Timestamp


def move_positions(
    write: Write, positions: DurablePositions, visible: Callable[[], None] = lambda: None
) -> None:
    """Let a write make its moves; `visible` is called when it becomes visible."""
    moves = write.moves
    write.rows[CATALOG_SHARD] = ()
    write.at = lambda time: {CATALOG_SHARD: positions.updates(time, moves)}

    def applied(time: Timestamp) -> None:
        positions.apply(time, moves)
        visible()

    write.applied = applied
