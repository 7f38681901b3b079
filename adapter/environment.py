"""The environment: it builds everything above storage and compute; clients connect here.

Opening one takes the shards over, reads the catalog, plans its items, continues after the times of
its predecessor and creates the dataflows of maintained collections again. Shards that are not in
the catalog are dropped.
"""

import asyncio
import logging
import os
import random
import secrets
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from uuid import UUID

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.audit import Auditor
from foreshore.adapter.client import Backend, Login, ServerConfiguration, Startup
from foreshore.adapter.coordinator.catalog_commit import follow_bursts, start_replica
from foreshore.adapter.coordinator.coordinator import Coordinator
from foreshore.adapter.coordinator.idle_watermarks import IdleWatermarks
from foreshore.adapter.coordinator.view_handoff import Beginning
from foreshore.adapter.ddl.temporary import run_sweeps
from foreshore.adapter.definitions.plan_items import plan_items
from foreshore.adapter.introspection.audit_retention import AuditRetention
from foreshore.adapter.introspection.lag_history import LagHistory
from foreshore.adapter.introspection.view_errors import ViewErrors
from foreshore.adapter.logins import (
    FirstSettings,
    has_passwords,
    is_same_login,
    login_by,
    login_of,
    set_password,
)
from foreshore.adapter.plans.prepared import PlanCache
from foreshore.adapter.session.session import Session
from foreshore.adapter.session.shaped_texts import Shapes
from foreshore.adapter.statement.planning_cost import PlanningCost
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.bootstrap import first_state
from foreshore.catalog.builtin.registry import load_recorded
from foreshore.catalog.catalog import Catalog
from foreshore.catalog.durable import CATALOG_SHARD, ROW_SCHEMA, Stored, difference, read_catalog
from foreshore.catalog.item import Cluster, Item, Replica, Role
from foreshore.catalog.sequence_numbers import Sequences, generation_of
from foreshore.catalog.state import SYSTEM_TABLES, State
from foreshore.clock import Clock
from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.checkpoint.store import saved_dataflows
from foreshore.compute.controller.controller import ComputeController
from foreshore.compute.isolated.engine import IsolatedEngine
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.protocol import CheckpointStatus
from foreshore.deep_trees import DeepThreads
from foreshore.errors import (
    Fenced,
    InvalidAuthorization,
    OutOfDisk,
    QueryCanceled,
)
from foreshore.ids import GlobalId, is_user, number_of, temporary_schema
from foreshore.memory import RETURNS
from foreshore.memory_shares import of_engine
from foreshore.processes.child_environment import NETWORK
from foreshore.processes.child_process import ProcessLauncher
from foreshore.processes.launch import Launcher
from foreshore.query_memory import QUERY_MEMORY
from foreshore.session_variables import Variables
from foreshore.sql.rewrite.full_names import dotted
from foreshore.storage.blob import open_blob
from foreshore.storage.controller import ReadCapability, StorageController, WriteCapability
from foreshore.storage.identity import first_id
from foreshore.storage.lake.places import CopyPlaces
from foreshore.storage.lineage import lineage_of
from foreshore.storage.oracle import TimestampOracle
from foreshore.storage.read_holds import DEFAULT_LAG_MS, ReadHolds
from foreshore.storage.reserved_end import ReservedEnd
from foreshore.tokens import AccessToken
from foreshore.update import EMPTY, Timestamp
from foreshore.upkeep import goes_on

logger = logging.getLogger(__name__)

ORACLE_KEY = "oracle"
INGEST_COMMAND = (sys.executable, "-P", "-m", "foreshore.storage.ingest.main")
EXPORT_COMMAND = (sys.executable, "-P", "-m", "foreshore.storage.export.main")
THREADS = 4
EXPIRY_SECONDS = 1.0


class Environment:
    """One environment; implements `Client`."""

    def __init__(self, coordinator: Coordinator, data_directory: str) -> None:
        """Use `open`."""
        self.coordinator = coordinator
        self.plans = PlanCache()
        self.shapes = Shapes()
        self.planning_cost = PlanningCost()
        self.server_settings = {"data_directory": data_directory}  # as its options say
        self.sessions: dict[int, Session] = {}
        self._pids = count(1)
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(
        cls,
        *,
        storage: StorageController,
        clock: Clock,
        data_dir: Path,
        engine_options: Mapping[str, str] | None = None,
        lag_ms: int = DEFAULT_LAG_MS,
        launcher: Launcher | None = None,
        ingest: Launcher | None = None,
        export: Launcher | None = None,
    ) -> "Environment":
        """Open the database in `storage`: its catalog, times, clusters and dataflows."""
        if storage.exists(CATALOG_SHARD):
            capabilities = await storage.acquire_capabilities(storage.ids())
        else:
            capabilities = {CATALOG_SHARD: await storage.create(CATALOG_SHARD, ROW_SCHEMA)}
        uppers = map(storage.upper, storage.ids())
        at_least = max(upper for upper in uppers if upper != EMPTY)  # of constant shards
        oracle = await TimestampOracle.open(
            clock, ReservedEnd(storage.consensus, ORACLE_KEY, storage.epoch), at_least
        )
        stored = await read_catalog(storage, capabilities[CATALOG_SHARD][0])
        state = stored.state or first_state()
        catalog = Catalog(state, plan_items(state))
        await _match_shards(storage, catalog, capabilities)
        sequences = Sequences(storage.consensus, storage.epoch)
        await sequences.open(
            generation_of(item) for item in state.all(Item) if item.type == "sequence"
        )
        options = {
            "data_dir": os.path.abspath(data_dir),  # noqa: ASYNC240 - looks at no file
            **(engine_options or {}),
        }
        await blocking.run(None, load_recorded)
        lineage = await lineage_of(storage.consensus)
        database = lineage.database
        errors = ViewErrors(lambda: coordinator)
        compute = ComputeController(
            storage,
            lambda id: coordinator.capabilities_of(id),
            errors=errors,
            options=options,
            database=database,
            launcher=launcher,
            checkpoints=await blocking.run(None, _saved_dataflows, options, database),
        )
        executor = DeepThreads(THREADS, "query")
        engine = await blocking.run(
            None,
            lambda: DuckDbEngine(
                directories=[str(storage.files.root)],
                memory_limit=f"{of_engine(QUERY_MEMORY.limit)}B",
                threads=2,
                scratch=str(storage.scratch / "queries"),
            ),
        )
        coordinator = Coordinator(
            clock=clock,
            storage=storage,
            compute=compute,
            engine=engine,
            isolated=IsolatedEngine([str(storage.files.root)]),
            executor=executor,
            oracle=oracle,
            catalog=catalog,
            holds=ReadHolds(lag_ms),
            sequences=sequences,
            errors=errors,
            capabilities=capabilities,
            ingest=ingest or ProcessLauncher(INGEST_COMMAND, NETWORK),
            export=export or ProcessLauncher(EXPORT_COMMAND, NETWORK),
            lineage=lineage,
            environment_id=f"foreshore-local-{UUID(lineage.database)}-0",
        )
        environment = cls(coordinator, os.path.abspath(data_dir))  # noqa: ASYNC240
        coordinator.host_keys = Path(environment.server_settings["data_directory"], "ssh_hosts")
        storage.corruptions.name = lambda id: _called(coordinator.state, id)
        await environment._start(stored)
        storage.set_wait_for_room(True)
        return environment

    async def _start(self, stored: Stored) -> None:
        coordinator = self.coordinator
        storage, state = coordinator.storage, coordinator.state
        group = coordinator.group
        tables = [item.id for item in state.all(Item) if item.type == "table"]
        for id in (CATALOG_SHARD, *tables):
            group.add(coordinator.capabilities[id][1])
        loop = asyncio.get_running_loop()
        await group.advance()
        self._tasks.append(loop.create_task(group.run()))
        if stored.state is None:
            write = Write({CATALOG_SHARD: ()})
            write.at = lambda time: {CATALOG_SHARD: difference(None, state, time)}
            await group.write(write)
        for cluster in state.all(Cluster):
            coordinator.compute.create_cluster(cluster.id, cluster.size, dict(cluster.options))
        follow_bursts(coordinator.compute, state)
        read_ts = coordinator.oracle.read_ts()
        await coordinator.errors.open(read_ts)
        for item in state.items():
            if item.type == "table":
                coordinator.look_after(item, max(storage.since(item.id), item.since))
                self._build_keys(item, read_ts)
            elif item.is_collection:
                await self._resume(item, read_ts)
        # Only now, as all dataflows are known: a replica that still runs keeps them when it is
        # connected to, and no writer forgets the errors of collections below its own.
        for replica in state.all(Replica):
            start_replica(coordinator.compute, replica)
        followers = [item.id for item in state.all(Item) if item.type == "subscription"]
        coordinator.subscriptions.open(stored.positions, followers)
        coordinator.leftovers.open(stored.leftovers)
        self.coordinator.loop_latency.start()
        self.idle_watermarks = IdleWatermarks(coordinator)
        self._sweeping = loop.create_task(run_sweeps(coordinator, self.sessions))
        loops = (
            coordinator.run_holds(),
            self._run_expiry(),
            LagHistory(coordinator).run(),
            coordinator.usage.run(),
            AuditRetention(coordinator).run(),
            self.idle_watermarks.run(),
        )
        self._tasks += [*map(loop.create_task, loops), self._sweeping]
        self._tasks.append(loop.create_task(self._read_watermarks(tables)))
        await coordinator.ingestion.open(self._open_session)
        coordinator.exports.open()
        coordinator.published.open(self._open_session)
        coordinator.check_consistency()

    async def _read_watermarks(self, tables: Sequence[GlobalId]) -> None:
        """Read the watermarks of tables that nobody has written yet, once views have resumed."""
        await self.coordinator.compute.resumed()
        read = partial(self.coordinator.watermarks.read_all, tables)
        await goes_on(read, "watermarks are not known until tables are written")

    def _build_keys(self, item: Item, time: Timestamp) -> None:
        """Build a table's key indexes once views have resumed, or when a statement needs them.

        Statements that need them wait, so the rows of that moment are those of `time`.
        """
        if not item.has_key_indexes:
            return
        coordinator = self.coordinator
        planned = coordinator.catalog.planned[item.id]
        indexes = [
            KeyIndex(item.id, constraint, planned.desc, time) for constraint in planned.unique
        ]
        if not indexes:
            return
        if not coordinator.storage.count_updates(item.id):
            for index in indexes:
                index.newest.advance(time + 1)
            coordinator.keys.replace(item.id, {each.constraint.name: each for each in indexes})
            return

        async def rows() -> pa.Table:
            read, _ = coordinator.capabilities[item.id]  # which has moved on meanwhile
            with coordinator.storage.snapshot(read, coordinator.oracle.read_ts()) as snapshot:
                return await snapshot.contents()

        building = coordinator.keys.build(
            indexes, rows, coordinator.oracle.read_ts, coordinator.compute.resumed
        )
        self._tasks.append(asyncio.get_running_loop().create_task(building))

    async def _resume(self, item: Item, read_ts: Timestamp) -> None:
        """Create the dataflow of a maintained collection again, from where it can continue."""
        coordinator = self.coordinator
        if item.type == "index":
            # Its plan relies on constraints, which rows from before an ALTER TABLE may violate.
            since = 0
            for id in coordinator.catalog.sources(item.id):
                since = max(since, coordinator.holds.since(id), coordinator.state.altered(id) or 0)
            begins = Beginning(max(since, read_ts - (item.retain_ms or 0)))
            known = begins.as_of
        else:
            begins = await coordinator.view_handoff.beginning(item)
            known = coordinator.storage.since(item.id)
        coordinator.as_ofs[item.id] = begins.as_of
        since_then = known if begins.lost is None else max(known, begins.as_of)
        coordinator.look_after(item, since_then)
        await coordinator.maintain(item, begins)

    def has_condition(self, webhook: tuple[str, str, str]) -> bool:
        """Return whether a webhook has a condition (CHECK); raises UndefinedTable."""
        return self.coordinator.webhooks.has_condition(webhook)

    async def receive(
        self, webhook: tuple[str, str, str], headers: Mapping[str, bytes], body: bytes
    ) -> None:
        """Write the rows of a request to a webhook."""
        await self.coordinator.webhooks.receive(webhook, headers, body)

    async def close(self) -> None:
        """End all sessions, complete pending writes, and close everything but storage."""
        await self.coordinator.published.close()
        self.coordinator.storage.stop_waiting()
        for session in list(self.sessions.values()):
            await session.close()
        self.coordinator.loop_latency.close()
        self._sweeping.cancel()  # the next start drops the rest
        await self.coordinator.catalog_commits.settled()
        await self.coordinator.webhooks.close()
        await self.coordinator.ingestion.close()
        await self.coordinator.exports.close()
        await self.coordinator.leftovers.close()
        self.coordinator.changelogs.close()
        try:
            await self.coordinator.sequences.close()
        except (OutOfDisk, Fenced) as error:
            logger.warning("sequences will leave gaps: %s", error)
        except Exception:
            logger.exception("sequences will leave gaps")
        self.coordinator.group.close()
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.coordinator.compute.close()
        await self.coordinator.errors.close()
        await self.coordinator.copies.close()
        self.coordinator.executor.shutdown(wait=False, cancel_futures=True)
        await blocking.run(None, self.coordinator.isolated.close)
        self.coordinator.keys.close()
        await blocking.run(None, self.coordinator.engine.close)

    async def _run_expiry(self) -> None:
        """End idle sessions and forget dropped tables, every second, until cancelled."""
        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            await goes_on(self._expire, "idle sessions were not ended")

    async def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        for session in list(self.sessions.values()):
            session.expire(now)
        self.forget_retired()

    def forget_retired(self) -> None:
        """Forget tables dropped before the oldest running transaction began."""
        running = (session.transactions.running for session in self.sessions.values())
        began = (transaction.began for transaction in running if transaction is not None)
        now = self.coordinator.oracle.read_ts()
        self.coordinator.group.forget_retired(min(began, default=now))

    @property
    def failed(self) -> BaseException | None:
        """The error because of which the environment can no longer write, None if it can."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                return task.exception()
        return None

    # --- clients -------------------------------------------------------------------------------

    def login(self, name: str) -> Login | None:
        """Return what is known of a role; None if there is none of this name."""
        return login_of(self.coordinator.state, name)

    def login_by(self, token: AccessToken) -> Login | None:
        """Return the role whose token this is; None if it is none, has expired or was dropped."""
        return login_by(self.coordinator.state, token, self.coordinator.clock.now() * 1000)

    def configured_by(self, configuration: ServerConfiguration) -> None:
        """Let statements look at the server's configuration, and reload it."""
        self.coordinator.configuration = configuration

    def let_copy(self, places: Sequence[str], data_dir: Path) -> None:
        """Let COPY read and write files below these directories and buckets."""
        self.coordinator.copies.places = CopyPlaces(tuple(places), data_dir)

    def let_import(self, modules: Sequence[str]) -> None:
        """Let sources import these Python modules."""
        self.coordinator.ingestion.python_modules = frozenset(modules)

    async def equip_sources(self) -> None:
        """Give sources and sinks the secrets and places that the environment has got meanwhile.

        Only now what dropped ones have left is removed: that needs them, too.
        """
        await self.coordinator.ingestion.equip()
        await self.coordinator.exports.equip()
        self.coordinator.leftovers.begin()

    def audit_views(self, interval: float) -> None:
        """Verify a random materialized view every `interval` seconds."""
        auditing = Auditor(self, random.Random()).run(interval)
        self._tasks.append(asyncio.get_running_loop().create_task(auditing))

    def unlock_secrets(self, key: bytes) -> None:
        """Let secrets be written and read, by their key of 32 bytes."""
        self.coordinator.secrets.unlock(key)

    def has_passwords(self) -> bool:
        """Return whether a client can prove to be a role by its password."""
        return has_passwords(self.coordinator.state)

    async def set_password(self, role: str, password: str) -> None:
        """Give a role a password, durably."""
        await set_password(self.coordinator, role, password)

    async def connect(self, startup: Startup) -> Session:
        """Begin a session."""
        state = self.coordinator.state
        role = state.role(startup.user)
        if role is None:
            raise InvalidAuthorization(f'role "{startup.user}" does not exist')
        if startup.login is not None and not is_same_login(startup.login, role):
            raise InvalidAuthorization(f'role "{startup.user}" has changed during the login')
        first = FirstSettings(state, role, startup)
        for name, value in self.server_settings.items():
            first.variables.set_fixed(name, value)
        key = secrets.token_bytes(startup.key_bytes)
        backend = Backend(startup.peer, startup.encryption, "client backend", key)
        pid = next(self._pids)
        session = Session(self, pid, role, first.variables, backend)
        first.assume_roles(session.roles)
        for message in first.warnings:
            session.news.notice(message, severity="WARNING")
        self.sessions[pid] = session
        if session.variables["log_connections"] == "on":
            logger.info("session begun", extra=_about(session))
        return session

    def _open_session(self, role: Role, database: str, settings: Mapping[str, str]) -> Session:
        """Begin a session of the environment's own, as a role that need not be able to log in."""
        variables = Variables({"database": database})
        for name, value in settings.items():
            variables.set_default(name, value)
        for name, value in self.server_settings.items():
            variables.set_fixed(name, value)
        session = Session(
            self, next(self._pids), role, variables, Backend(secret=secrets.token_bytes(4))
        )
        self.sessions[session.pid] = session
        return session

    def cancel(self, pid: int, secret: bytes) -> None:
        """Cancel the statement of session `pid` if `secret` is its key."""
        session = self.sessions.get(pid)
        if session is not None and secrets.compare_digest(session.backend.secret, secret):
            session.interrupts.request(QueryCanceled())

    def forget(self, session: Session) -> None:
        """Forget a session that has ended; its temporary objects are dropped soon after."""
        self.sessions.pop(session.pid, None)
        RETURNS.note_end()
        if session.variables["log_disconnections"] == "on":
            logger.info("session ended", extra=_about(session))
        self.coordinator.advisory.release_transaction(session.pid)
        self.coordinator.advisory.release_session(session.pid)
        self.coordinator.channels.forget(session.news.inbox)
        self.coordinator.catalog_answers.forget_schema(temporary_schema(session.pid))


def _about(session: Session) -> dict[str, object]:
    """Return what the log says about a session."""
    return {
        "session": session.pid,
        "role": session.roles.session.name,
        "database": session.database,
        "address": session.backend.address or "local",
        "application": session.variables["application_name"],
        "tls": session.backend.encryption is not None,
    }


async def _match_shards(
    storage: StorageController,
    catalog: Catalog,
    capabilities: dict[GlobalId, tuple[ReadCapability, WriteCapability]],
) -> None:
    """Drop the shards that are in no catalog, and create those of new system tables.

    No id of a shard is allotted again, even if it never came into the catalog.
    """
    bound = filter(is_user, (*storage.ids(), *storage.retired_ids()))
    catalog.counters["u"] = max(
        await first_id(storage.consensus),
        catalog.counters.get("u", 1),
        *(number_of(id) + 1 for id in bound),
    )
    for id in storage.ids():
        if id != CATALOG_SHARD and catalog.state.get(id) is None:
            logger.info("dropping a shard that is in no catalog", extra={"shard": id})
            await storage.drop(id)
            del capabilities[id]
    for item in SYSTEM_TABLES:
        if not storage.exists(item.id):
            schema = catalog.planned[item.id].desc.stored_schema()
            capabilities[item.id] = await storage.create(item.id, schema)


def _called(state: State, id: GlobalId) -> str:
    """Return the name of a shard for messages."""
    if id == CATALOG_SHARD:
        return "the catalog"
    item = state.get(id)
    return (
        f"{item.type} {dotted(state.full_name(item))}" if isinstance(item, Item) else f"shard {id}"
    )


def _saved_dataflows(
    options: Mapping[str, str], database: str
) -> Mapping[str, tuple[CheckpointStatus, ...]]:
    """Return the dataflows of the checkpoints that replicas of an earlier environment have left."""
    blob = open_blob(options.get("blob"), Path(options["data_dir"]))
    return saved_dataflows(blob, database)
