"""The commands. Only this file builds all layers and connects them.

    foreshore serve      serve a database
    foreshore replica    run a replica on this machine for a server on another
    foreshore demo       serve, load the live demo and replay it
    foreshore doctor     look for what is wrong with the machine, the data and the server
    foreshore inspect    show what a data directory holds, and check it
    foreshore backup     copy a database as of one moment, while it is served or not
    foreshore restore    make a data directory from a backup
    foreshore repair     remove what a catalog names that does not exist
    foreshore dump       print the definitions of all objects as SQL

Each option can also be given in the environment, as FORESHORE_ and its name.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import asyncpg
import click
import uvloop
from click.core import ParameterSource

from foreshore import blocking, logs
from foreshore.adapter.environment import EXPORT_COMMAND, INGEST_COMMAND, Environment
from foreshore.adapter.metrics.scrape import EnvironmentMetrics
from foreshore.catalog.inspection import as_json, as_text, dangling_of, names_of
from foreshore.catalog.repair import Repaired, repair
from foreshore.clock import SystemClock
from foreshore.compute.memory_limit import machine_bytes
from foreshore.compute.replica.main import start as start_replica
from foreshore.compute.spark.java import find_java, java_version
from foreshore.errors import DatabaseError, Fenced, Unavailable, UndefinedFile, is_disk_full
from foreshore.extras import INSTALL_DEMO, is_demo_installed, require_spark
from foreshore.garbage import BoundedCollections
from foreshore.interruptible import are_computing
from foreshore.loop_watchdog import Watchdog
from foreshore.memory import RETURNS, hold_queries_to
from foreshore.memory_shares import of_connectors
from foreshore.processes import file_modes
from foreshore.processes.child_environment import (
    AWS,
    COMPUTE,
    NETWORK,
    PASSED_VARIABLE,
    Names,
    remove_private_home,
)
from foreshore.processes.child_process import COMMAND, ProcessLauncher
from foreshore.processes.launch import Launcher
from foreshore.processes.lifeline import standard_input_ends
from foreshore.processes.owner import SOCKET_PORT
from foreshore.processes.scratch import remove_abandoned
from foreshore.python_functions.limits import allow
from foreshore.server import key_file as key_files
from foreshore.server.admission.authenticator import Authenticator
from foreshore.server.admission.policy import RULES_NAME, USER_NAMES_NAME
from foreshore.server.commands import Commands
from foreshore.server.configuration import Configuration
from foreshore.server.descriptors import connections_that_fit
from foreshore.server.doctor.below import Below, Contents
from foreshore.server.doctor.command import doctor_command
from foreshore.server.dump import dump_command
from foreshore.server.http.app import HttpServer
from foreshore.server.http.origins import Origins
from foreshore.server.http.sessions import Sessions
from foreshore.server.lease import Lease
from foreshore.server.listener import Listener
from foreshore.server.options import ServeOptions, address, flags, option, serve_options
from foreshore.server.ports import (
    Address,
    bind_all,
    bind_all_within,
    bind_unix,
    unlink_unix,
)
from foreshore.server.repair import repair_command
from foreshore.server.reporting import reporting
from foreshore.server.server_lock import ServerLock
from foreshore.server.traces import open_traces
from foreshore.storage.backup import back_up, restore
from foreshore.storage.consensus_services import open_shared_lock
from foreshore.storage.controller import StorageConfig, StorageController
from foreshore.storage.external.process_memory import VARIABLE as CONNECTOR_MEMORY
from foreshore.storage.inspection import inspect
from foreshore.storage.lake.places import CopyPlaces
from foreshore.storage.lake.unfinished import remove_unfinished
from foreshore.storage.private_directory import prepare
from foreshore.storage.wal import SEGMENT_BYTES

if TYPE_CHECKING:
    from foreshore.compute.hydrate.shards import SparkMerger

logger = logging.getLogger(__name__)

ROLE = "foreshore"  # the first role, and the first database
PORTS_FREE_SECONDS = 10.0  # after a take-over, until the other server's ports are free


async def serve(options: ServeOptions) -> None:
    """Serve until SIGTERM, SIGINT, or a failure after which the server can write or answer no more.

    With `lifeline`, also until standard input ends. Raises LockFileExists if a live server has the
    data, unless `take_over` is set.
    """
    stop, hurry = asyncio.Event(), asyncio.Event()

    def end() -> None:
        (hurry if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    loop.set_default_executor(blocking.Unwaited(thread_name_prefix="blocking"))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    if options.lifeline:
        parent = loop.create_task(standard_input_ends())
        parent.add_done_callback(lambda _: stop.set())
    max_connections = connections_that_fit(options.max_connections)
    configuration = await blocking.run(None, Configuration.load, options)
    loop.add_signal_handler(signal.SIGHUP, loop.run_in_executor, None, _reload, configuration)
    ready = False
    https = configuration.tls.https() if options.http_tls and configuration.tls else None
    origins = Origins(options.http_origin, [each.lower() for each in options.http_host])
    http = HttpServer(
        lambda: ready, lambda: environment.coordinator.check_settled(), https, origins
    )
    addresses = (
        (*address(options.pg_listen), "--pg-listen"),
        (*address(options.http_listen), "--http-listen"),
    )
    ports = await _bind(options, addresses)
    async with contextlib.AsyncExitStack() as closing:
        closing.push_async_callback(http.close)
        if ports is not None and ports[1]:
            await http.listen(ports[1])
        await blocking.run(None, remove_abandoned)
        hold_queries_to(options.query_memory << 20)
        closing.callback(loop.create_task(RETURNS.run()).cancel)
        lock = await _server_lock(options)
        closing.push_async_callback(lock.close)
        await lock.acquire(stop, take_over=options.take_over)
        if stop.is_set():
            return
        if options.python_functions:  # before it starts processes, which get the same settings
            allow(
                options.python_function_timeout,
                options.python_function_memory,
                options.python_function_answers,
            )
        os.environ[PASSED_VARIABLE] = " ".join(options.pass_environment)
        megabytes = options.connector_memory or of_connectors(machine_bytes() or 0)
        os.environ[CONNECTOR_MEMORY] = str(megabytes)
        launcher, ingest, export = _launchers(options)
        closing.push_async_callback(blocking.run, None, remove_private_home)
        launcher.begin_spare()
        closing.push_async_callback(launcher.end_spare)
        merger = _merger(options)
        storage = await StorageController.open(
            data_dir=options.data_dir,
            blob=options.blob,
            consensus=options.consensus,
            clock=SystemClock(),
            config=StorageConfig(options.segment_bytes or SEGMENT_BYTES, merger=merger),
        )
        closing.push_async_callback(storage.close)
        if merger is not None:  # before storage is closed, which waits for its merge
            closing.push_async_callback(blocking.run, None, merger.close)
        environment = await _environment(options, storage, launcher, ingest, export)
        closing.push_async_callback(environment.close)
        key_file = options.secrets_key_file or options.data_dir / key_files.NAME
        key = await blocking.run(None, key_files.load_key, key_file)
        if options.password is not None:
            await environment.set_password(ROLE, options.password)
        await launcher.end_spare()
        await lock.wait_for_others(stop)
        if stop.is_set():
            return
        if ports is None:
            ports = await bind_all_within(PORTS_FREE_SECONDS, addresses)
            if ports[1]:
                await http.listen(ports[1])
        lease = await closing.enter_async_context(Lease(storage.check_owned))
        environment.configured_by(configuration)
        environment.server_settings["max_connections"] = str(max_connections)
        reserved = str(options.superuser_reserved_connections)
        environment.server_settings["superuser_reserved_connections"] = reserved
        rules = options.hba_file or options.data_dir / RULES_NAME
        user_names = options.ident_file or options.data_dir / USER_NAMES_NAME
        environment.server_settings["hba_file"] = str(rules.absolute())
        environment.server_settings["ident_file"] = str(user_names.absolute())
        environment.unlock_secrets(key)
        environment.let_copy(options.copy_dir, options.data_dir)
        environment.let_import(options.python_source_module)
        await environment.equip_sources()
        places = CopyPlaces(tuple(options.copy_dir), options.data_dir)
        await blocking.run(None, remove_unfinished, places)
        if options.audit_interval:
            environment.audit_views(options.audit_interval)
        configuration.check_safe(ports[0], has_passwords=environment.has_passwords())
        authenticator = Authenticator(
            environment, configuration.policy, key_files.derived(key, "unknown roles")
        )
        listener = Listener(
            environment,
            authenticator,
            lease,
            max_connections,
            tls=configuration.tls,
            reserved=options.superuser_reserved_connections,
            max_message=options.max_message_size << 20,
        )
        sockets = list(ports[0])
        if options.socket_dir is not None:
            sockets.append(await blocking.run(None, bind_unix, options.socket_dir))
            closing.push_async_callback(blocking.run, None, unlink_unix, options.socket_dir)
        watchdog = Watchdog()
        watchdog.start()
        closing.callback(watchdog.close)
        port = await listener.listen(sockets)
        environment.server_settings["port"] = str(port)
        programs = Sessions(environment, authenticator, listener.places, lease, origins, ROLE)
        http.open(programs, EnvironmentMetrics(environment, options.metrics_views))
        if (traces := open_traces(options.trace_endpoint)) is not None:
            closing.push_async_callback(blocking.run, None, traces.close)
        collections = BoundedCollections(are_computing)
        collections.start()
        closing.callback(collections.close)
        ready = True
        url = _url(options, port)
        lock.announce_address(url)
        print(f"foreshore ready: {url}", flush=True)
        if ports[1]:
            print(f"console: {_console_url(options, ports[1][0], https is not None)}", flush=True)
        reason: Fenced | None = None
        try:
            await _until_stopped(stop, environment, lease)
        except Fenced as error:
            reason = error
            raise
        finally:
            ready = False
            lock.announce_end()
            ends: list[Listener | Sessions] = [listener, programs]
            if reason is None and stop.is_set():
                await asyncio.gather(
                    *(each.drain(options.shutdown_timeout, hurry) for each in ends)
                )
            await asyncio.gather(*(each.close(reason) for each in ends))


def _url(options: ServeOptions, port: int) -> str:
    """Return where clients connect: by TCP if the server listens there, else the Unix socket."""
    host, _ = address(options.pg_listen)
    if not host:
        directory = "" if options.socket_dir is None else quote(str(options.socket_dir))
        return f"postgres://{ROLE}@/{ROLE}?host={directory}&port={SOCKET_PORT}"
    return f"postgres://{ROLE}@{_shown(host)}:{port}/{ROLE}"


def _console_url(options: ServeOptions, bound: socket.socket, secure: bool) -> str:
    """Return where browsers find the console."""
    host, _ = address(options.http_listen)
    return f"http{'s' if secure else ''}://{_shown(host)}:{bound.getsockname()[1]}/"


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _reload(configuration: Configuration) -> None:
    logger.info("received SIGHUP, reloading configuration files")
    configuration.reload()


async def _bind(
    options: ServeOptions, addresses: Sequence[Address]
) -> list[list[socket.socket]] | None:
    """Bind the server's ports; None if a server to be taken over from may have them."""
    try:
        return await bind_all(addresses)
    except Unavailable as error:
        if not options.take_over:
            raise
        logger.warning("%s; this is tried again after the take-over", error.message)
        return None


async def _server_lock(options: ServeOptions) -> ServerLock:
    """Return the lock on the data, not acquired; the data directory is made if it is not there."""
    stores, group = (options.blob, options.consensus), options.allow_group_access
    await blocking.run(None, prepare, options.data_dir, stores, key_files.NAME, group=group)
    return ServerLock(options.data_dir, open_shared_lock(options.consensus))


def _merger(options: ServeOptions) -> "SparkMerger | None":
    """Return what merges large batches on Spark, None if nothing does."""
    if options.spark_compaction is None:
        return None
    require_spark("--spark-compaction")
    from foreshore.compute.hydrate.shards import merger_of

    return merger_of(options.spark_master, options.spark_compaction, options.spark_properties)


def _launchers(
    options: ServeOptions,
) -> tuple[ProcessLauncher, ProcessLauncher, ProcessLauncher]:
    """Return the launchers of replicas, and of processes of sources and of sinks.

    They have the server's identity at AWS for the buckets that its operator names.
    """
    own_store: tuple[Names, ...] = (AWS,) if (options.blob or "").startswith("s3:") else ()
    places = any(each.startswith("s3:") for each in options.copy_dir)
    external = (NETWORK, AWS) if places else (NETWORK,)
    return (
        ProcessLauncher(COMMAND, COMPUTE, *own_store),
        ProcessLauncher(INGEST_COMMAND, *external),
        ProcessLauncher(EXPORT_COMMAND, *external, umask=file_modes.operators_umask()),
    )


async def _environment(
    options: ServeOptions,
    storage: StorageController,
    launcher: Launcher,
    ingest: Launcher,
    export: Launcher,
) -> Environment:
    return await Environment.open(
        storage=storage,
        clock=SystemClock(),
        data_dir=options.data_dir,
        launcher=launcher,
        ingest=ingest,
        export=export,
        engine_options={
            **options.spark_properties,
            "master": options.spark_master,
            "query_memory": str(options.query_memory << 20),
            "checkpoint_interval_ms": str(1000 * options.checkpoint_interval),
            "checkpoint_least_bytes": str(int(options.checkpoint_size * (1 << 20))),
            **({} if options.blob is None else {"blob": options.blob}),
        },
    )


async def _until_stopped(stop: asyncio.Event, environment: Environment, lease: Lease) -> None:
    while not stop.is_set():
        try:
            async with asyncio.timeout(1):
                await stop.wait()
        except TimeoutError:
            if (failure := environment.failed or lease.failure) is not None:
                raise failure from None


@click.group(cls=Commands)
@click.version_option(package_name="foreshore")
def main() -> None:
    """Foreshore keeps the results of SQL queries up to date while the data changes."""
    file_modes.keep_private()


def _in_one_line(error: DatabaseError) -> str:
    """Return the error's message, detail and hint as one line."""
    parts = [text for text in (error.message, error.detail, error.hint) if text is not None]
    return "; ".join([*(part.removesuffix(".") for part in parts[:-1]), parts[-1]])


@main.command("serve")
@serve_options
@flags
def serve_command(**given: Any) -> None:
    """Serve a database. FORESHORE_PASSWORD sets the first role's password."""
    options = ServeOptions(**given, password=os.environ.pop("FORESHORE_PASSWORD", None) or None)
    _ = options.tls, options.spark_properties
    if options.allow_group_access:
        file_modes.keep_private(group=True)
    address(options.pg_listen)
    address(options.http_listen)
    os.environ[logs.FORMAT_VARIABLE] = options.log_format  # replicas inherit them
    if options.log_level is not None:
        os.environ[logs.LEVEL_VARIABLE] = options.log_level
    logs.configure("server", "INFO")
    # Bounds how long a thread of pure Python delays the loop, and a busy loop the log's thread.
    sys.setswitchinterval(0.0001)
    status = 1
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(options))
        status = 0
    except DatabaseError as error:
        logger.critical("%s", _in_one_line(error))
    except OSError as error:
        hint = "; Check free disk space." if is_disk_full(error) else ""
        # If the error names no file, log the traceback, which shows where it was raised.
        logger.critical("%s%s", error, hint, exc_info=not hint and error.filename is None)
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)  # all is closed; Python's own shutdown order would disturb DuckDB


@main.command("replica")
@click.option(
    "--listen", required=True, metavar="HOST:PORT", help="Where the environment connects."
)
def replica_command(listen: str) -> None:
    """Run a replica for a server on another machine, which names it in CREATE CLUSTER REPLICA."""
    address(listen)
    start_replica(listen, lifeline=False)


_ALL_INTACT = "verified: all data is intact"
_NOT_VERIFIED = "the states and the log are intact; --verify checks the contents of batches, too"


@main.command("inspect")
@click.argument("data_dir", type=click.Path(path_type=Path, resolve_path=True))
@click.option("--verify", is_flag=True, help="Also read and check every batch.")
@click.option("--json", "json_", is_flag=True, help="Show JSON.")
@click.option("--spark", "master", metavar="MASTER", help="Let Spark read the batches.")
def inspect_command(data_dir: Path, verify: bool, json_: bool, master: str | None) -> None:
    """Show what DATA_DIR holds. The exit status is 1 if something is corrupt."""
    with reporting():
        if verify and master is not None:
            from foreshore.compute.hydrate.verify_batches import on_spark

            with on_spark(master) as run:
                found = inspect(data_dir, verify=True, run=run)
        else:
            found = inspect(data_dir, verify=verify)
    names = names_of(data_dir, found)
    if json_:
        click.echo(json.dumps(as_json(found, names), indent=2))
    else:
        for line in as_text(found, names):
            click.echo(line)
        if not found.corruptions:
            click.echo(f"\n{_ALL_INTACT if verify else _NOT_VERIFIED}")
    if found.corruptions:
        sys.exit(1)


def _contents(data_dir: Path) -> Contents:
    """Return what a data directory holds, for the doctor."""
    found = inspect(data_dir, verify=False)
    damages = tuple(f"{each.file}: {each.message}" for each in sorted(found.corruptions))
    torn = sum(segment.torn for segment in found.segments)
    lost = dangling_of(data_dir, found)
    return Contents(len(found.shards), len(found.segments), torn, damages, lost)


def _java() -> str:
    """Return which Java runs Spark; raises Unavailable."""
    java = find_java()
    return f"Java {java_version(java)} at {java}"


async def _repair(data_dir: Path, blob: str | None, consensus: str | None) -> Repaired:
    """Take the server lock of a data directory and repair its catalog."""
    if not (data_dir / "log").exists():
        raise UndefinedFile(f'"{data_dir}" is no data directory')
    file_modes.check_owner(data_dir)
    lock = ServerLock(data_dir, open_shared_lock(consensus))
    async with contextlib.AsyncExitStack() as closing:
        closing.push_async_callback(lock.close)
        await lock.acquire(asyncio.Event())
        storage = await StorageController.open(
            data_dir=data_dir, blob=blob, consensus=consensus, clock=SystemClock()
        )
        closing.push_async_callback(storage.close)
        return await repair(storage)


main.add_command(dump_command())
main.add_command(repair_command(_repair))
main.add_command(doctor_command(Below(_contents, _java, machine_bytes)))


@main.command("backup")
@click.option(
    "--from",
    "source",
    required=True,
    metavar="URL|DIR",
    help="The postgres:// address of a server on this machine, or a data directory.",
)
@click.argument("place", type=click.Path(path_type=Path, resolve_path=True))
def backup_command(source: str, place: Path) -> None:
    """Back up a database to PLACE, a new directory or that of its last backup."""
    with reporting():
        data_dir = asyncio.run(_data_directory(source)) if "://" in source else Path(source)
        backup = back_up(data_dir, place)
    files = "1 file" if len(backup.files) == 1 else f"{len(backup.files)} files"
    click.echo(f"{place}: {files}, {sum(f.bytes for f in backup.files)} bytes")


@main.command("restore")
@click.argument("place", type=click.Path(path_type=Path, resolve_path=True))
@click.argument("data_dir", type=click.Path(path_type=Path, resolve_path=True))
def restore_command(place: Path, data_dir: Path) -> None:
    """Make DATA_DIR from the backup in PLACE, to be served by `foreshore serve`."""
    with reporting():
        restore(place, data_dir)


async def _data_directory(url: str) -> Path:
    """Return the data directory of the server at `url`, which must be on this machine."""
    try:
        connection = await asyncpg.connect(url)
        try:
            directory = Path(await connection.fetchval("SHOW data_directory"))
        finally:
            await connection.close()
    except (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise Unavailable(f"could not ask the server: {error}", sqlstate="08001") from error
    if not directory.is_dir():  # noqa: ASYNC240 - nothing else runs
        raise UndefinedFile(f'the server\'s data directory "{directory}" is not on this machine')
    return directory


@main.command("demo")
@serve_options
@option(
    "start", type=click.DateTime(), default="2013-07-01", help="Moment at which the replay starts."
)
@option(
    "speed",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    help="Seconds of 2013 for each second.",
)
@option("tick-interval", default="10s", help="Interval of the views on Spark.")
@click.option(
    "--spark/--no-spark", default=True, envvar="FORESHORE_SPARK", help="Create views on Spark."
)
@click.option("--kill9", is_flag=True, help="Kill the server under load, and count what is lost.")
@click.option("--kills", type=click.IntRange(1), default=5, show_default=True, help="For --kill9.")
@click.pass_context
def demo_command(
    context: click.Context,
    /,
    start: datetime,
    speed: float,
    tick_interval: str,
    spark: bool,
    kill9: bool,
    kills: int,
    **serving: object,
) -> None:
    """Serve, load the flights of 2013, and replay them in real order.

    The flights come with the extra foreshore[demo].

    With --kill9 a demo of its own, in a temporary directory unless one is given. It needs no
    flights and listens on no port.
    """
    if kill9:
        from foreshore.server.demo.kill9 import run_kill9

        with reporting():
            if context.get_parameter_source("data_dir") is ParameterSource.DEFAULT:
                data_dir = Path(tempfile.mkdtemp(prefix="foreshore-kill9-"))
            else:
                data_dir = Path(str(serving["data_dir"]))
            print(f"in the data directory {data_dir}", flush=True)
            context.exit(run_kill9(data_dir, kills, lambda text: print(text, flush=True)))
    if not is_demo_installed():
        raise click.ClickException(
            "the demo requires its flights and psycopg, which are not installed;"
            f" install them with {INSTALL_DEMO}"
        )
    from foreshore.server.demo.run import run_demo

    arguments: list[str] = []
    for name, value in serving.items():
        for each in value if isinstance(value, tuple) else (value,):
            if each is not None:
                arguments += [f"--{name.replace('_', '-')}", str(each)]
    context.exit(
        run_demo(arguments, start=start, speed=speed, tick_interval=tick_interval, spark=spark)
    )


if __name__ == "__main__":
    main()
