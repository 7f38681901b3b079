"""Sinks of a database that was restored from a backup: paused until ALTER SINK ... RESUME.

The original may still write their targets, and two databases must not write one target.
"""

from foreshore.ids import GlobalId
from foreshore.sinks.spec import SinkSpec
from foreshore.storage.lineage import Lineage

PAUSED = (
    "this database was restored from a backup, and the original may still write the target:"
    " ALTER SINK ... RESUME lets the sink go on here once the original has ended"
)


def is_paused(lineage: Lineage, id: GlobalId, spec: SinkSpec) -> bool:
    """Return whether a sink must not write: it is the original's, and nobody has resumed it."""
    return lineage.is_inherited(id) and spec.resumed_in != lineage.database
