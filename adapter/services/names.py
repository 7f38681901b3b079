"""Names: the catalog, and what belongs to its objects beside."""

from pathlib import Path
from typing import Protocol

from foreshore.adapter.transaction.catalog_change import CatalogChange
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.builtin.answers import CatalogAnswers
from foreshore.catalog.catalog import Catalog
from foreshore.catalog.secret_values import Secrets
from foreshore.catalog.state import State
from foreshore.storage.lineage import Lineage
from foreshore.update import Timestamp


class CatalogCommits(Protocol):
    """Changes the catalog."""

    async def commit(self, write: Write, change: CatalogChange) -> Timestamp:
        """Make a write and a change of the catalog durable and visible at one time; return it."""


class Names(Protocol):
    """The catalog of the environment, as it is committed."""

    @property
    def catalog(self) -> Catalog:
        """The objects, and their plans."""

    @property
    def state(self) -> State:
        """The catalog's present state."""

    @property
    def catalog_commits(self) -> CatalogCommits:
        """Changes of the catalog, one after the other."""

    @property
    def catalog_answers(self) -> CatalogAnswers:
        """Answers to queries of the catalog, which are kept while it does not change."""

    @property
    def secrets(self) -> Secrets:
        """The values of secrets."""

    @property
    def lineage(self) -> Lineage:
        """Which database it is, and which ones it was restored from."""

    @property
    def host_keys(self) -> Path:
        """The folder of the keys that SSH servers had at first."""
