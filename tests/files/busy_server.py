"""`foreshore` with a log of tiny segments and a short history, so that it compacts constantly."""

from foreshore.adapter.environment import Environment
from foreshore.server.main import main
from foreshore.storage import compacter, controller, merging

defaults = controller.StorageConfig.__init__.__defaults__
assert defaults is not None
controller.StorageConfig.__init__.__defaults__ = (defaults[0], 10, *defaults[2:])  # records
compacter.MANY = 2  # segments
merging.ROWS_OF_A_FILE = 10
Environment.open.__func__.__kwdefaults__["lag_ms"] = 3_000  # type: ignore[attr-defined]

main()
