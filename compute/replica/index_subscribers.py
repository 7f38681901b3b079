"""The subscribers of a dataflow's indexes: from request, to initial contents, to changes.

    requested    until the index is known at the time of its initial contents
    beginning    a worker reads its initial contents
    current      it receives each change

The worker reads `current`, and the loop replaces it as a whole.
"""

from collections.abc import Mapping

from foreshore.compute.arrange.arrangement import Arrangement
from foreshore.compute.output import Output
from foreshore.compute.protocol import SubscribeIndex, SubscribeResponse
from foreshore.compute.replica.export_messages import Sent
from foreshore.compute.replica.indexes import Index, asked
from foreshore.compute.replica.queues import at_or_after
from foreshore.ids import GlobalId
from foreshore.update import Timestamp


class IndexSubscribers:
    """The subscribers of the indexes of one dataflow."""

    def __init__(self, indexes: Mapping[GlobalId, Index]) -> None:
        self._indexes = indexes
        self.current: Mapping[GlobalId, SubscribeIndex] = {}
        self._requested: tuple[SubscribeIndex, ...] = ()
        self._beginning: tuple[SubscribeIndex, ...] = ()

    @property
    def ids(self) -> set[GlobalId]:
        """Return all subscribers, including those about to start."""
        return {*self.current, *(request.id for request in self._requested)}

    def request(self, request: SubscribeIndex) -> None:
        """Add a subscriber to an index."""
        self._requested = (*self._requested, request)

    def remove(self, id: GlobalId) -> None:
        """End a subscription, if there is one with that id."""
        self.current = {f: each for f, each in self.current.items() if f != id}
        self._requested = tuple(each for each in self._requested if each.id != id)
        self._beginning = tuple(each for each in self._beginning if each.id != id)

    def due(self, frontier: Timestamp) -> bool:
        """Whether a subscriber can be sent the initial contents."""
        requested = self._requested
        return bool(requested) and any(self._begin(each) < frontier for each in requested)

    def begin(self, frontier: Timestamp) -> None:
        """Select the subscribers whose initial contents can be sent, for `beginnings`."""
        self._beginning = tuple(f for f in self._requested if self._begin(f) < frontier)

    def beginnings(self, errors: Arrangement, frontier: Timestamp) -> Sent:
        """On the worker: return the initial contents for the selected subscribers."""
        sent: Sent = []
        for request in self._beginning:
            index = self._indexes.get(request.index)
            if index is not None:
                begin = self._begin(request)
                if request.most is not None and index.rows.size[0] > request.most:
                    sent.append((SubscribeResponse(request.id, 0, 0, overflow=True), ()))
                    continue
                lower = request.lower if begin == asked(request) else begin + 1
                tables = tuple(
                    at_or_after(arranged.updates(begin), lower) for arranged in (index.rows, errors)
                )
                sent.append((SubscribeResponse(request.id, lower, frontier), tables))
        return sent

    def begun(self) -> None:
        """Let the subscribers that got their initial contents receive changes from now on."""
        begun, self._beginning = self._beginning, ()
        if begun:
            self._requested = tuple(f for f in self._requested if f not in begun)
            self.current = {**self.current, **{f.id: f for f in begun}}

    def changes(self, output: Output, lower: Timestamp, upper: Timestamp) -> Sent:
        """On the worker: return the messages for the output of a window."""
        sent: Sent = []
        if self.current and not output.is_empty:
            for request in self.current.values():
                if request.most is not None and output.count > request.most:
                    sent.append((SubscribeResponse(request.id, lower, upper, overflow=True), ()))
                    continue
                response = SubscribeResponse(request.id, lower, upper)
                sent.append((response, (output.rows, output.errors)))
        return sent

    def _begin(self, request: SubscribeIndex) -> Timestamp:
        """Return the time of a subscriber's initial contents.

        If the index is readable only from a later time than requested, the subscriber gets the
        changes after it: either another replica has sent earlier ones, or the subscription has
        failed.
        """
        index = self._indexes.get(request.index)
        return max(asked(request), index.rows.since if index is not None else 0)
