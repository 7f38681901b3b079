"""The environment's side: a process for each cluster, and the sources or sinks in it."""

import asyncio
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from foreshore.ids import GlobalId
from foreshore.processes.launch import Launcher
from foreshore.processes.link import Link
from foreshore.processes.messages import Message
from foreshore.processes.transport import Connection, Tables

Job = TypeVar("Job")
Handled = TypeVar("Handled", contravariant=True)


class Controller(Protocol[Handled]):
    """Whose processes they are; its methods are called on the event loop."""

    def connected(self, job: Handled, connection: Connection[Any]) -> None:
        """Let a new process do a job."""
        ...

    def lost(self, job: Handled) -> None:
        """Note that the process of a job has ended; another one will come."""
        ...

    def deliver(self, job: Handled, response: Any, tables: Tables) -> None:
        """Take what the process says of a job."""
        ...


class _Process(Generic[Job]):
    def __init__(self) -> None:
        self.jobs: dict[GlobalId, Job] = {}
        self.connection: Connection[Any] | None = None
        self.task: asyncio.Task[None] | None = None


class ClusterProcesses(Generic[Job]):
    """The jobs of a controller, each in the process of its cluster.

    `responses` is the union of what processes send, each with the `id` of a job, and `kind` the
    word for them in the log.
    """

    def __init__(
        self, launcher: Launcher, controller: Controller[Job], responses: Any, kind: str
    ) -> None:
        self._launcher = launcher
        self._controller = controller
        self._responses = responses
        self._kind = kind
        self._clusters: dict[str, _Process[Job]] = {}
        self._cluster_of: dict[GlobalId, str] = {}

    def add(self, id: GlobalId, cluster: str, job: Job) -> None:
        """Let the process of a cluster do a job; starts one if there is none."""
        assert id not in self._cluster_of, id
        self._cluster_of[id] = cluster
        process = self._clusters.get(cluster)
        if process is None:
            process = self._clusters[cluster] = _Process()
            process.task = asyncio.get_running_loop().create_task(self._link(cluster, process))
        process.jobs[id] = job
        if process.connection is not None:
            self._controller.connected(job, process.connection)

    def get(self, id: GlobalId) -> Job | None:
        """Return the job of an id; None if there is none."""
        cluster = self._cluster_of.get(id)
        return None if cluster is None else self._clusters[cluster].jobs[id]

    def connection(self, id: GlobalId) -> Connection[Any] | None:
        """Return the connection to the process of a job; None while there is none."""
        cluster = self._cluster_of.get(id)
        return None if cluster is None else self._clusters[cluster].connection

    def jobs(self) -> Mapping[GlobalId, Job]:
        """Return all jobs."""
        return {id: self._clusters[place].jobs[id] for id, place in self._cluster_of.items()}

    async def remove(self, id: GlobalId, stop: Message) -> None:
        """Send `stop` about a job that there is; ends a process that has no other."""
        cluster = self._cluster_of.pop(id)
        process = self._clusters[cluster]
        del process.jobs[id]
        if process.connection is not None:
            process.connection.send(stop)
        if not process.jobs:
            del self._clusters[cluster]
            assert process.task is not None
            process.task.cancel()
            await asyncio.gather(process.task, return_exceptions=True)

    async def _link(self, cluster: str, process: _Process[Job]) -> None:
        """Keep a process running until cancelled."""

        def connected(connection: Connection[Any]) -> None:
            process.connection = connection
            for job in list(process.jobs.values()):
                self._controller.connected(job, connection)

        def deliver(response: Any, tables: Tables) -> None:
            job = process.jobs.get(response.id)
            if job is not None:  # else it was stopped meanwhile
                self._controller.deliver(job, response, tables)

        def lost() -> None:
            process.connection = None
            for job in list(process.jobs.values()):
                self._controller.lost(job)

        link: Link[Any] = Link(
            cluster, self._launcher, self._responses, connected, deliver, lost, kind=self._kind
        )
        await link.run()
