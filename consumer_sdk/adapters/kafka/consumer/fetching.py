"""Takes what the client has fetched in the background, and waits when there is nothing.

The client's ``getmany`` is not used: it waits without a bound while the group rebalances (a
revoke that waits for a fetch would never end), throws away what it holds of paused partitions,
raises one partition's error for all, and builds objects that nobody needs.

The client's fetch task is guarded. Whatever one of its requests raises ends all fetching: a name or a
number of an answer that a bit has changed is enough. And of a broker that finds its own log corrupt the
client writes a line, and asks again for ever. Nor does it ask how much memory a compressed batch will take.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import FetchError
from aiokafka.errors import (
    CorruptRecordException,
    KafkaError,
    RecordTooLargeError,
    UnsupportedCodecError,
)

from consumer_sdk.adapters.assignment_book import AssignmentBook
from consumer_sdk.adapters.doubts import REFETCHES
from consumer_sdk.adapters.kafka.client.faults import translate
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.consumer.salvaging import Salvage, unreadable_run
from consumer_sdk.adapters.kafka.decoding.record_batches import MAX_BATCH_BYTES, oversized
from consumer_sdk.adapters.kafka.decoding.salvage import Salvaged
from consumer_sdk.adapters.kafka.decoding.unpacking import Unpacker
from consumer_sdk.records import Run

__all__ = ["FetchBuffer", "guard"]

log = logging.getLogger(__name__)

LOOK = 100e-6
"""Seconds, for each partition held, between two wakes of the client while it has records buffered.
It then looks at every partition, which takes a twentieth of that."""


class FetchBuffer:
    """The client's prefetched records, seen through the grants.

    Args:
        consumer: the client.
        most: bytes that a batch may have, decompressed.

    Attributes:
        salvage: what could not be read twice; to be run before anything is taken, where something waits.
    """

    def __init__(
        self, consumer: Any, grants: AssignmentBook[Grant], most: int = MAX_BATCH_BYTES
    ) -> None:
        self._consumer = consumer
        self._grants = grants
        self.salvage = Salvage(consumer, most)
        self._waiter: asyncio.Future[None] | None = None
        self._emptied: set[Any] = set()  # partitions that the client may fetch, and was not told of
        self._woken_at = 0.0

    @property
    def _fetcher(self) -> Any:
        return self._consumer._fetcher

    def take(self, max_records: int, max_bytes: int) -> list[Run]:
        """The runs that are here now: several partitions', up to the limits."""
        runs: list[Run] = []
        buffered = self._fetcher._records
        for tp in list(buffered):
            grant = self._grants.at(tp)
            if grant is None or not grant.is_fetched:
                continue
            run = self._take_from(grant, buffered[tp], max_records, max_bytes)
            if run is None:
                continue
            runs.append(run)
            max_records -= len(run.messages)
            max_bytes -= run.size
            if max_records <= 0 or max_bytes <= 0:
                break
        if self._emptied:
            self._wake_client()
        return runs

    def _wake_client(self) -> None:
        """At once for a node of which nothing is left, else now and then.

        It would wake with each partition that is emptied, and look at all of them. Nothing waits
        for what is fetched then, as long as there are records of the same node.
        """
        now = asyncio.get_running_loop().time()
        if now - self._woken_at < LOOK * len(self._grants) and not self._has_idle_node():
            return
        self._woken_at = now
        self._emptied.clear()
        self._fetcher._notify(self._fetcher._wait_consume_future)

    def _has_idle_node(self) -> bool:
        leader = self._consumer._client.cluster.leader_for_partition
        nodes = {leader(tp) for tp in self._emptied}
        for tp in self._fetcher._records:
            grant = self._grants.at(tp)
            if grant is not None and grant.is_fetched:
                nodes.discard(leader(tp))
            if not nodes:
                return False
        return True

    def _take_from(self, grant: Grant, found: Any, max_records: int, max_bytes: int) -> Run | None:
        if type(found) is FetchError:
            return self._refused(grant, found._error)
        if not self._is_current(grant, found):
            self._forget(grant)
            return None
        unpacker = self._unpacker_of(found, grant)
        if isinstance(unpacker, Salvaged) and (unreadable := unpacker.unreadable) is not None:
            if unreadable.last is not None:
                # The cursor stays where it is. Only when the runtime has dealt with what is unreadable,
                # and resumes the grant, does it go on behind; then this is current again.
                unpacker.pass_by(unreadable.last + 1)
            return unreadable_run(grant, unreadable)
        try:
            messages, size = unpacker.take(grant.assignment, max_records, max_bytes)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this partition's alone
            self._forget(grant)
            return self._doubt(grant, error)
        position = unpacker.next_fetch_offset
        grant.cursor.consumed_to(position)
        if unpacker.is_empty:
            self._forget(grant)
        if not messages and position == grant.reported:
            return None
        grant.reported = position
        return Run(grant.assignment, messages, position, size=size, ascends=True)

    @staticmethod
    def _unpacker_of(found: Any, grant: Grant) -> Unpacker | Salvaged:
        records = found._partition_records
        if isinstance(records, Unpacker | Salvaged):
            return records
        skips_old = grant.acquitted == grant.cursor.position
        unpacker = Unpacker(records, grant.cursor.highwater, skips_old=skips_old)
        found._partition_records = unpacker
        return unpacker

    @staticmethod
    def _is_current(grant: Grant, found: Any) -> bool:
        """It was fetched under this grant, and nobody has sought since."""
        # Otherwise records would be passed over:
        #   1. a fetch at offset 100 is under way;
        #   2. the partition is revoked, granted anew, and starts at 40, the last commit;
        #   3. the answer comes, begins at 100, and belongs to the client's former assignment.
        # A seek, as `Granting` makes one to gate a partition, does the same within one assignment.
        position: int = found._partition_records.next_fetch_offset
        is_ours = found._assignment is grant.client_assignment
        return is_ours and grant.cursor.position == position

    def _refused(self, grant: Grant, error: Exception) -> Run | None:
        """The broker's answer, or something in it that stands for no answer of a broker."""
        self._forget(grant)
        if isinstance(error, RecordTooLargeError):
            # A length that points beyond the answer; the client has gone on behind it.
            grant.cursor.consumed_to(error.args[2])
        elif isinstance(error, KafkaError) and not isinstance(error, CorruptRecordException):
            return self._fault(grant, error)
        return self._doubt(grant, error)

    def _doubt(self, grant: Grant, error: Exception) -> Run | None:
        """What cannot be read is fetched again: the log may be sound, and the network not.

        What cannot be read then either is taken apart.
        """
        if isinstance(error, UnsupportedCodecError):
            return self._fault(grant, error)
        position = grant.cursor.position
        if grant.doubts.failed_at(position) < REFETCHES:
            log.warning("%s at %d is fetched again: %r", grant.tp, position, error)
        else:
            self.salvage.add(grant, error)  # fetches it for the last time
        return None

    def _forget(self, grant: Grant) -> None:
        """Lets the client fetch the partition again."""
        self._fetcher._records.pop(grant.tp, None)
        self._emptied.add(grant.tp)

    @staticmethod
    def _fault(grant: Grant, error: Exception) -> Run:
        grant.has_fault = True
        grant.cursor.pause()
        fault = translate(error, f"fetching {grant.tp.topic}[{grant.tp.partition}]")
        return Run(grant.assignment, fault=fault)

    def last_answer(self) -> int | None:
        """Changes whenever the broker answers a fetch; None when nothing is to be fetched."""
        marks = [grant.cursor.timestamp or 0 for grant in self._grants if grant.is_fetched]
        return max(marks, default=None)

    async def wait(self, timeout: float) -> None:
        """Waits until something may be there, or `wake` is called.

        Cancellation: loses nothing; nothing has been taken.
        """
        waiter = self._waiter = self._fetcher._create_fetch_waiter()
        try:
            await asyncio.wait([waiter], timeout=timeout)
        finally:
            if waiter.done() and not waiter.cancelled():
                waiter.exception()  # the coordinator keeps it too, and is asked by the caller
            waiter.cancel()

    def wake(self) -> None:
        """Ends a wait."""
        if self._waiter is not None:
            self._fetcher._notify(self._waiter)


# -- the client's fetch task, guarded ----------------------------------------------------------

FETCH = 1
"""The key of a fetch in Kafka's protocol."""


class GuardedClient:
    """The client, as its fetcher sees it.

    Args:
        most: bytes that a batch may have, decompressed. What follows one that has more is cut off:
            it is fetched again, by itself, when it is next.

    Attributes:
        faults: partitions of which nothing can be read, and why, since they were last looked at.
    """

    def __init__(self, client: Any, most: int) -> None:
        self._client = client
        self._most = most
        self.faults: dict[TopicPartition, Exception] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node: Any, request: Any, **options: Any) -> Any:
        """Looks at the answer."""
        answer = await self._client.send(node, request, **options)
        if request.API_KEY == FETCH:
            answer.topics = [
                (topic, [self._look(topic, part) for part in partitions])
                for topic, partitions in answer.topics
            ]
        return answer

    def _look(self, topic: str, part: tuple[Any, ...]) -> tuple[Any, ...]:
        number, code, *rest, batches = part
        tp = TopicPartition(topic, number)
        if code == CorruptRecordException.errno:
            self.faults[tp] = CorruptRecordException("the broker finds its log corrupt")
        found = oversized(batches or b"", self._most)
        if found is None:
            return part
        at, error = found
        if at == 0:
            self.faults[tp] = error
        return (number, code, *rest, batches[:at])


def guard(fetcher: Any, most: int) -> None:
    """An answer that cannot be used is an error of its partitions, not the end of all fetching.

    Args:
        most: bytes that a batch may have, decompressed.
    """
    fetch = fetcher._proc_fetch_request
    answers = fetcher._client = GuardedClient(fetcher._client, most)

    async def fetch_guarded(assignment: Any, node: Any, request: Any) -> bool:
        try:
            has_news = bool(await fetch(assignment, node, request))
        except Exception as error:  # noqa: BLE001 - it would end all fetching
            log.warning("an answer of node %s cannot be used: %r", node, error)
            asked = [TopicPartition(topic, part[0]) for topic, ps in request.topics for part in ps]
            return _fail(fetcher, assignment, dict.fromkeys(asked, _unusable(error)))
        faults, answers.faults = answers.faults, {}
        return _fail(fetcher, assignment, faults) or has_news

    fetcher._proc_fetch_request = fetch_guarded


def _unusable(cause: Exception) -> Exception:
    error: Exception = CorruptRecordException(f"no answer: {cause!r}")
    error.__cause__ = cause
    return error


def _fail(fetcher: Any, assignment: Any, faults: Mapping[TopicPartition, Exception]) -> bool:
    """Gives each of them its error; whether there was one."""
    # 1. a fetch is under way; 2. the group rebalances, and the client has another assignment; 3. the
    # answer cannot be used. That is no error of whoever has the partition now.
    if not assignment.active:
        return False
    for tp, error in faults.items():
        # What came before the fault, in this answer or the last one, is to be taken first. The client
        # fetches the partition again after that, and meets the fault again.
        if tp not in fetcher._records:
            fetcher._set_error(tp, error)
    return bool(faults)
