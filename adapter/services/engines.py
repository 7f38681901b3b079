"""Engines: where the environment's own process evaluates queries."""

from concurrent.futures import Executor
from typing import Protocol

from foreshore.compute.bulk.engine import BulkEngine
from foreshore.compute.isolated.engine import IsolatedEngine
from foreshore.shares import Shares
from foreshore.storage.decoded_files import DecodedFiles


class Engines(Protocol):
    """The engines that evaluate queries outside of clusters."""

    @property
    def executor(self) -> Executor:
        """Threads for what takes long."""

    @property
    def engine(self) -> BulkEngine:
        """Evaluates queries over the catalog and over few rows."""

    @property
    def isolated(self) -> IsolatedEngine:
        """A process for what would block this one."""

    @property
    def apart(self) -> Shares:
        """The shares of login roles in it."""

    @property
    def decoded(self) -> DecodedFiles:
        """Small files that were decoded."""
