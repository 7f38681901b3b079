"""Reads the partitions of a topic, from offsets on. All calls block, and are made in one thread."""

import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.sources.kafka import KafkaSource
from foreshore.storage.external.access import Access
from foreshore.storage.external.kafka import ANSWER_SECONDS, Client
from foreshore.storage.ingest.connector import Position

MOST_BYTES = 16_000_000  # of the values of a batch, or a single message
MOST_MESSAGES = 100_000  # of a batch
AT_ONCE = 10_000  # messages
REFRESH_SECONDS = 10.0  # between looks for new partitions
COMMIT_SECONDS = 5.0
NOTE_SECONDS = 0.5  # between two looks at the ends that the client has heard of
_END = -1


class TopicReader:
    """The messages of a topic, partition by partition in order.

    A part of its positions is named by the number of a partition, and `table` if it reads for one.
    If it knows the id of its topic, another topic of that name is not read.
    """

    def __init__(
        self,
        spec: KafkaSource,
        access: Access,
        group: str,
        table: str = "",
        topic_id: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec, self._table, self._clock = spec, table, clock
        self._topic_id = topic_id
        self._client = Client(access, group)
        self._offsets: dict[int, int] = {}  # the next of each partition
        self._ends: dict[int, int] = {}  # that were seen
        self._refresh_at = self._commit_at = self._note_at = 0.0
        self.messages = 0  # that were taken
        self.known: Position = {}  # the ends of the partitions, as far as the client has heard
        self._durable: Position = {}

    def open(self, position: Position) -> dict[str, int]:
        """Go to a position; return where the partitions begin that it does not have.

        Raises DatabaseError if the topic cannot be read from there.
        """
        known = self._own(position)
        self._recognise()
        found = self._client.topic(self._spec.topic).partitions
        if any(each not in found for each in known):
            raise self._lost("it has fewer partitions than before")
        new = [each for each in sorted(found) if each not in known]
        began = self._starts(new, is_later=bool(known))
        self._offsets = known | began
        for partition, offset in known.items():
            self._check(partition, offset)
        self._client.consumer.assign(self._at(self._offsets))
        self._refresh_at = self._clock() + REFRESH_SECONDS
        return self._parts(began)

    def furthest(self) -> dict[str, int]:
        """Return the offsets after the last messages of all partitions that are there now."""
        topic = self._spec.topic
        found = self._client.topic(topic).partitions
        return self._parts({each: self._client.bounds(topic, each)[1] for each in sorted(found)})

    def take(self) -> tuple[Sequence[Message], dict[str, int]]:
        """Return the messages of a batch's time, and the position after them where it changes.

        Raises DatabaseError if the topic cannot be read any more.
        """
        moved = self._refreshed()
        self._commit()
        self._note_ends()
        messages: list[Message] = []
        size, ends = 0, self._clock() + self._spec.batch_ms / 1000
        while size < MOST_BYTES and len(messages) < MOST_MESSAGES:
            remaining = ends - self._clock()
            if remaining <= 0:
                break
            mean = size // (len(messages) or 1)
            count = max(1, min(AT_ONCE, (MOST_BYTES - size) // (mean or 1)))
            found = self._without_ends(self._client.consumer.consume(count, timeout=remaining))
            messages += found
            size += sum(map(len, found))
        if not messages and self._client.failures.reason is not None:
            raise self._client.failures.unreachable()
        self._client.failures.reason = None
        self.messages += len(messages)
        for partition, offset in self._following(messages).items():
            if offset > self._offsets[partition]:
                self._offsets[partition] = moved[partition] = offset
        return messages, self._parts(moved)

    def _following(self, messages: Sequence[Message]) -> dict[int, int]:
        """Return the offsets that follow messages, and the ends that were seen since the last."""
        following = {each.partition(): each.offset() + 1 for each in messages}
        for partition, offset in self._ends.items():
            following[partition] = max(offset, following.get(partition, 0))
        self._ends.clear()
        return following

    def _without_ends(self, found: Sequence[Message]) -> Sequence[Message]:
        """Return messages without those that say that a partition has no more; raises on errors.

        The end is also that of what is no message: of aborted transactions and their marks.
        """
        if all(each.error() is None for each in found):
            return found
        messages = []
        for each in found:
            error = each.error()
            if error is None:
                messages.append(each)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ends[each.partition()] = each.offset()
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise self._lost(error.str())
            else:
                raise self._client.failures.error(error, f'topic "{self._spec.topic}"')
        return messages

    def committed(self, position: Position) -> None:
        """Note what is durable, for who monitors the consumer group; does not block."""
        self._durable = position

    def close(self) -> None:
        """Leave the brokers."""
        self._client.close()

    # --- positions -----------------------------------------------------------------------------

    def _parts(self, offsets: Mapping[int, int]) -> dict[str, int]:
        """Return a position by the names of its parts."""
        more = f" {self._table}" if self._table else ""
        return {f"{partition}{more}": offset for partition, offset in offsets.items()}

    def _own(self, position: Position) -> dict[int, int]:
        """Return the offsets of a position that are this reader's."""
        found = {}
        for part, offset in position.items():
            partition, _, table = part.partition(" ")
            if table == self._table:
                found[int(partition)] = offset
        return found

    def _at(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        topic = self._spec.topic
        return [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]

    def _starts(self, partitions: Sequence[int], *, is_later: bool) -> dict[int, int]:
        """Return where partitions begin.

        Those that came later are read as a whole where START OFFSET counts from the end.
        """
        spec, topic = self._spec, self._spec.topic
        by_time: dict[int, int] = {}
        if spec.start_timestamp is not None and partitions:
            asked = [TopicPartition(topic, each, spec.start_timestamp) for each in partitions]
            try:
                answers = self._client.consumer.offsets_for_times(asked, timeout=ANSWER_SECONDS)
            except KafkaException as error:
                raise self._client.failures.error(error.args[0]) from error
            by_time = {each.partition: each.offset for each in answers}
        starts = {}
        for each in partitions:
            first, following = self._client.bounds(topic, each)
            start = first
            if each in by_time:
                start = following if by_time[each] == _END else by_time[each]
            elif each < len(spec.start_offsets):
                start = spec.start_offsets[each]
                if start < 0:  # so many before the end
                    start = first if is_later else max(first, following + start)
                if start > following:
                    raise ObjectNotInPrerequisiteState(
                        f'partition {each} of topic "{topic}" ends before START OFFSET {start}',
                        hint="The source begins when the topic has got there. START OFFSET"
                        f" {following} begins with the next message.",
                    )
            starts[each] = max(first, start)
        return starts

    def _check(self, partition: int, offset: int) -> None:
        """Raise if what follows an offset cannot be read without a gap."""
        first, following = self._client.bounds(self._spec.topic, partition)
        if offset > following:
            raise self._lost(
                f"partition {partition} was read up to offset {offset}, and ends at {following}"
            )
        if offset < first:
            raise self._lost(
                f"partition {partition} was read up to offset {offset}, and begins at {first}"
            )

    def _recognise(self) -> None:
        """Raise if the topic is another one than when its relation was made."""
        if self._topic_id is None:
            return
        found = self._client.topic_id(self._spec.topic)
        if found is not None and found != self._topic_id:
            raise self._lost(f"its id is {found}, and was {self._topic_id}")

    def _lost(self, why: str) -> ObjectNotInPrerequisiteState:
        return ObjectNotInPrerequisiteState(
            f'topic "{self._spec.topic}" has lost messages that were not read, or was created '
            f"anew: {why}",
            hint="Drop the source and create it again.",
        )

    def _refreshed(self) -> dict[int, int]:
        """Look for new partitions from time to time; return where they begin to be read."""
        if self._clock() < self._refresh_at:
            return {}
        self._recognise()
        found = self._client.topic(self._spec.topic).partitions
        if any(each not in found for each in self._offsets):
            raise self._lost("it has fewer partitions than before")
        new = [each for each in sorted(found) if each not in self._offsets]
        began = self._starts(new, is_later=True)
        if began:
            self._client.consumer.incremental_assign(self._at(began))
            self._offsets |= began
        self._refresh_at = self._clock() + REFRESH_SECONDS
        return began

    def _note_ends(self) -> None:
        """Look at the ends that brokers have told with messages; asks none."""
        if self._clock() < self._note_at:
            return
        known = {}
        for each in self._at(self._offsets):
            _, end = self._client.consumer.get_watermark_offsets(each, cached=True)
            known[each.partition] = max(end, self._offsets[each.partition])
        self.known = self._parts(known)
        self._note_at = self._clock() + NOTE_SECONDS

    def _commit(self) -> None:
        """Tell the consumer group what is durable here; nothing relies on it."""
        if not self._durable or self._clock() < self._commit_at:
            return
        durable, self._durable = self._durable, {}
        offsets = self._at(self._own(durable))
        if offsets:
            self._client.consumer.commit(offsets=offsets, asynchronous=True)
        self._commit_at = self._clock() + COMMIT_SECONDS
