"""Partitions that are fetched by themselves, on a client whose broker answers what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import NotLeaderForPartitionError, OffsetOutOfRangeError
from aiokafka.protocol.fetch import FetchResponse_v4

from consumer_sdk.adapters.assignment_book import AssignmentBook, GrantState
from consumer_sdk.adapters.kafka.consumer.fetching import FetchBuffer
from consumer_sdk.adapters.kafka.consumer.grants import Grant
from consumer_sdk.adapters.kafka.consumer.session import Session
from consumer_sdk.adapters.kafka.fetch.cursor import Chunk, reach_of
from consumer_sdk.adapters.kafka.fetch.session import CLOSING
from consumer_sdk.adapters.kafka.fetch.structs import FetchAnswer, FetchRequest
from consumer_sdk.adapters.kafka.options import KafkaOptions
from consumer_sdk.errors import UnreadableRecordError
from consumer_sdk.records import Run
from consumer_sdk.testing import Simulation, simulate
from tests.adapters.kafka.decoding.test_salvage import rows
from tests.adapters.kafka.decoding.test_unpacking import (
    CODECS,
    batch,
    wrong_checksum,
    wrong_header,
)

GOOD = batch(rows(0, 3))
BAD = wrong_checksum(GOOD)
HIGHWATER = 1000


OPTIONS = KafkaOptions(
    pattern=None,
    protocol="classic",
    topics=("t",),
    servers=["localhost:9092"],
    group=None,
    isolation_level="read_uncommitted",
    session_timeout=10.0,
    rebalance_timeout=30.0,
    heartbeat_interval=None,
    connect_timeout=10.0,
    client_id="c",
    max_batch_bytes=1 << 20,
)


class Client:
    """A session that finds what it is given, and whose leader answers one thing to a fetch by itself."""

    def __init__(
        self, data: bytes = b"", error: int = 0, aborted: Sequence[tuple[int, int]] = ()
    ) -> None:
        self.requests: list[FetchRequest] = []
        high = HIGHWATER if data else -1
        answer = FetchResponse_v4(0, [("t", [(0, error, high, -1, list(aborted), data)])])
        self._answer = FetchAnswer(4, answer.encode(), 0)
        cluster: Any = SimpleNamespace(
            leader_of=lambda _tp: (1, -1),
            add_listener=lambda _listener: None,
            remove_listener=lambda _listener: None,
            send=self._send,
        )
        self.grants = AssignmentBook[Grant]()
        session: Any = object.__new__(Session)
        options = replace(
            OPTIONS, isolation_level="read_committed" if aborted else "read_uncommitted"
        )
        session.buffer = self.buffer = FetchBuffer(cluster, self.grants, options)
        session._raise_errors = lambda: None
        session._stall = SimpleNamespace(look=lambda *_: None)
        self.session: Session = session

    async def _send(self, _node: int, request: FetchRequest) -> FetchAnswer:
        if request.request.epoch != CLOSING:  # in the background: see `prefetch`
            await asyncio.Event().wait()
        self.requests.append(request)
        return self._answer

    def grant(self, number: int = 0) -> Grant:
        """Holds a partition, from its first offset on."""
        grant = Grant(TopicPartition("t", number), None)
        grant.state = GrantState.OPEN
        grant.cursor.seek(0)
        self.buffer.add(grant.cursor)
        grant.cursor.resume()
        self.grants.offer(grant)
        return grant

    def prefetch(self, grant: Grant, data: bytes) -> None:
        """What comes in the background, unless the partition is paused for it."""
        cursor = grant.cursor
        if not cursor.queue and not cursor.paused:
            reach = reach_of(data)
            assert reach is not None
            cursor.put(Chunk(data, cursor.position, reach, highwater=HIGHWATER))

    async def fetch(self, grant: Grant, data: bytes, times: int = 10) -> list[Run]:
        """What comes of a partition of which the client reads only these bytes."""
        for _ in range(times):
            self.prefetch(grant, data)
            if runs := await self.session.fetch(100, 1 << 20, 0.01):
                return runs
        return []


def run(test: Callable[[Client], Awaitable[None]], *given: Any) -> None:
    """In virtual time, on a client that is given these."""

    async def main(_simulation: Simulation) -> None:
        client = Client(*given)
        await test(client)
        await client.buffer.aclose()

    simulate(main)


def test_unreadable_partition_is_taken_apart_while_another_one_is_busy() -> None:
    """Its other half would wait until the busy one has nothing, which may be never."""

    async def test(client: Client) -> None:
        bad, busy = client.grant(0), client.grant(1)
        client.buffer.salvage.add(bad, OSError("bad"))
        seen: list[Run] = []
        for _ in range(3):
            at = busy.cursor.position
            client.prefetch(busy, batch(rows(at, at + 1)))
            seen += await client.session.fetch(1000, 1 << 20, 1.0)
        faults = [each.fault for each in seen if each.assignment is bad.assignment]
        assert [type(fault) for fault in faults] == [UnreadableRecordError]

    run(test, BAD)


@pytest.mark.parametrize("error", [OffsetOutOfRangeError, NotLeaderForPartitionError])
def test_refused_fetch_is_given_back_to_the_client(
    error: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It asks who leads, and hears that the position is out of range; nothing is paused for it."""

    async def test(client: Client) -> None:
        grant = client.grant()
        client.buffer.salvage.add(grant, OSError("bad"))
        for _ in range(3):
            await client.session.fetch(100, 1 << 20, 0.3)
        assert len(client.requests) == 1
        assert (grant.cursor.paused, grant.is_fetched) == (False, True)

    run(test, b"", error.errno)
    (record,) = caplog.records
    assert error.__name__ in record.getMessage()


def test_broker_that_sends_nothing_is_not_asked_without_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each time it is told, and waited."""

    async def test(client: Client) -> None:
        grant = client.grant()
        began = asyncio.get_running_loop().time()
        assert not await client.fetch(grant, BAD, 50)
        took = asyncio.get_running_loop().time() - began
        assert 1 < len(client.requests) <= took / 0.1
        assert client.requests[0].limits.max_wait == 1000
        assert client.requests[0].limits.min_bytes == 1

    run(test)
    assert "the broker sends nothing of offset 0" in caplog.text


def test_sound_copy_of_the_leader_is_read_where_a_followers_is_damaged() -> None:
    """The client reads the follower again and again (`client_rack`); the leader's answer counts."""

    async def test(client: Client) -> None:
        (found,) = await client.fetch(client.grant(), BAD)
        assert found.fault is None
        assert [message.value for message in found.messages] == [b"0", b"1", b"2"]

    run(test, GOOD)


def test_answer_that_is_sound_and_cannot_be_read_stops_the_consumer() -> None:
    """A batch that cannot lie where it says: to read it again and again would never end."""
    beyond = batch(rows(HIGHWATER + (1 << 21), HIGHWATER + (1 << 21) + 3))

    async def test(client: Client) -> None:
        (found,) = await client.fetch(client.grant(), beyond)
        assert isinstance(found.fault, UnreadableRecordError)
        assert not found.messages

    run(test, beyond)


def test_aborted_batch_is_passed_though_one_of_its_records_cannot_be_read() -> None:
    """The batch came with a wrong checksum twice; the leader's is sound, and of an aborted transaction."""
    aborted = wrong_header(batch(rows(0, 3, 1), producer=7, transaction=True))
    committed = batch(rows(3, 6), producer=8, transaction=True)

    async def test(client: Client) -> None:
        (found,) = await client.fetch(client.grant(), BAD)
        assert found.fault is None
        assert [message.value for message in found.messages] == [b"3", b"4", b"5"]

    run(test, aborted + committed, 0, [(7, 0)])


def test_batch_that_holds_too_much_is_not_read_behind_a_sound_one() -> None:
    """What is read of the leader's own answer is bounded, too."""
    bomb = batch([(3, 3, None, bytes(1 << 20), [])], CODECS["zstd"])

    async def test(client: Client) -> None:
        grant = client.grant()
        (found,) = await client.fetch(grant, BAD)
        assert [message.value for message in found.messages] == [b"0", b"1", b"2"]
        assert not grant.cursor.queue

    run(test, GOOD + bomb)
