"""Partitions that are fetched by themselves, on a client whose broker answers what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.consumer.subscription_state import TopicPartitionState
from aiokafka.errors import NotLeaderForPartitionError, OffsetOutOfRangeError
from aiokafka.protocol.fetch import FetchResponse_v4

from consumer_sdk.adapters.assignment_book import AssignmentBook, GrantState
from consumer_sdk.adapters.kafka.consumer.fetching import FetchBuffer
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.consumer.session import Session
from consumer_sdk.errors import UnreadableRecordError
from consumer_sdk.records import Run
from consumer_sdk.testing import Simulation, simulate
from tests.adapters.kafka.decoding.test_salvage import rows
from tests.adapters.kafka.decoding.test_unpacking import batch, records_of, wrong_checksum

GOOD = batch(rows(0, 3))
BAD = wrong_checksum(GOOD)
HIGHWATER = 1000


class ClientAssignment:
    """The client's: where it stands in each partition."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, Any] = {}

    def state_value(self, tp: TopicPartition) -> Any:
        """The state of one."""
        return self._states.setdefault(tp, TopicPartitionState(self))


class Client:
    """A session whose client fetches what it is given, and whose leader answers one thing."""

    def __init__(self, data: bytes = b"", error: int = 0) -> None:
        self.requests: list[Any] = []
        self._answer = FetchResponse_v4(
            0, [("t", [(0, error, HIGHWATER if data else -1, -1, [], data)])]
        )
        self.fetcher: Any = SimpleNamespace(
            _records={},
            _isolation_level=0,
            _check_crcs=True,
            _fetch_max_wait_ms=500,
            _max_partition_fetch_bytes=1 << 20,
            _notify=lambda _future: None,
            _wait_consume_future=None,
            _create_fetch_waiter=lambda: asyncio.get_running_loop().create_future(),
        )
        cluster = SimpleNamespace(leader_for_partition=lambda _tp: 1)
        client = SimpleNamespace(cluster=cluster, send=self._send)
        self.grants = AssignmentBook[Grant]()
        consumer = SimpleNamespace(_client=client, _fetcher=self.fetcher)
        self._assignment = ClientAssignment()
        session: Any = object.__new__(Session)
        session.buffer = self.buffer = FetchBuffer(consumer, self.grants)
        session._raise_errors = lambda: None
        session._stall = SimpleNamespace(look=lambda *_: None)
        self.session: Session = session

    async def _send(self, _node: int, request: Any) -> Any:
        self.requests.append(request)
        return self._answer

    def grant(self, number: int = 0) -> Grant:
        """Holds a partition, from its first offset on."""
        grant = Grant(TopicPartition("t", number), self._assignment)
        grant.state = GrantState.OPEN
        grant.cursor.seek(0)
        grant.cursor.highwater = HIGHWATER
        self.grants.offer(grant)
        return grant

    def prefetch(self, grant: Grant, data: bytes) -> None:
        """What the client does in the background, unless the partition is paused for it."""
        if grant.tp not in self.fetcher._records and not grant.cursor.paused:
            records = records_of(data, grant.cursor.position, (), 0)
            self.fetcher._records[grant.tp] = FetchResult(
                grant.tp, assignment=self._assignment, partition_records=records, backoff=0
            )

    async def fetch(self, grant: Grant, data: bytes, times: int = 10) -> list[Run]:
        """What comes of a partition of which the client reads only these bytes."""
        for _ in range(times):
            self.prefetch(grant, data)
            if runs := await self.session.fetch(100, 1 << 20, 0.01):
                return runs
        return []


def run(test: Callable[[], Awaitable[None]]) -> None:
    """In virtual time."""

    async def main(_simulation: Simulation) -> None:
        await test()

    simulate(main)


def test_unreadable_partition_is_taken_apart_while_another_one_is_busy() -> None:
    """Its other half would wait until the busy one has nothing, which may be never."""

    async def test() -> None:
        client = Client(BAD)
        bad, busy = client.grant(0), client.grant(1)
        client.buffer.salvage.add(bad, OSError("bad"))
        seen: list[Run] = []
        for _ in range(3):
            at = busy.cursor.position
            client.prefetch(busy, batch(rows(at, at + 1)))
            seen += await client.session.fetch(1000, 1 << 20, 1.0)
        faults = [each.fault for each in seen if each.assignment is bad.assignment]
        assert [type(fault) for fault in faults] == [UnreadableRecordError]

    run(test)


@pytest.mark.parametrize("error", [OffsetOutOfRangeError, NotLeaderForPartitionError])
def test_refused_fetch_is_given_back_to_the_client(
    error: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It asks who leads, and hears that the position is out of range; nothing is paused for it."""

    async def test() -> None:
        client = Client(error=error.errno)
        grant = client.grant()
        client.buffer.salvage.add(grant, OSError("bad"))
        for _ in range(3):
            await client.session.fetch(100, 1 << 20, 0.3)
        assert len(client.requests) == 1
        assert (grant.cursor.paused, grant.is_fetched) == (False, True)

    run(test)
    (record,) = caplog.records
    assert error.__name__ in record.getMessage()


def test_broker_that_sends_nothing_is_not_asked_without_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each time it is told, and waited."""

    async def test() -> None:
        client = Client()
        grant = client.grant()
        began = asyncio.get_running_loop().time()
        assert not await client.fetch(grant, BAD, 50)
        took = asyncio.get_running_loop().time() - began
        assert 1 < len(client.requests) <= took / 0.1
        assert client.requests[0]._max_wait_ms == 1000
        assert client.requests[0]._min_bytes == 1

    run(test)
    assert "the broker sends nothing of offset 0" in caplog.text


def test_sound_copy_of_the_leader_is_read_where_a_followers_is_damaged() -> None:
    """The client reads the follower again and again (`client_rack`); the leader's answer counts."""

    async def test() -> None:
        client = Client(GOOD)
        (found,) = await client.fetch(client.grant(), BAD)
        assert found.fault is None
        assert [message.value for message in found.messages] == [b"0", b"1", b"2"]

    run(test)


def test_answer_that_is_sound_and_cannot_be_read_stops_the_consumer() -> None:
    """A batch that cannot lie where it says: to read it again and again would never end."""

    async def test() -> None:
        beyond = batch(rows(HIGHWATER + (1 << 21), HIGHWATER + (1 << 21) + 3))
        client = Client(beyond)
        (found,) = await client.fetch(client.grant(), beyond)
        assert isinstance(found.fault, UnreadableRecordError)
        assert not found.messages

    run(test)
