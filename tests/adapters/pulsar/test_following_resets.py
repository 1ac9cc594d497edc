"""What becomes of an assignment whose cursor was set back, with a native client that is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from consumer_sdk.adapters.pulsar import PulsarAdapter
from consumer_sdk.adapters.pulsar.consumer import session
from consumer_sdk.adapters.pulsar.consumer.messages import (
    Delivery,
    NativeMessage,
    ascending,
    cuts_of,
)
from consumer_sdk.adapters.pulsar.consumer.resets import CursorResets
from consumer_sdk.adapters.pulsar.consumer.subscriber import Subscriber
from consumer_sdk.checkpoints.positions import LAST_BATCH_INDEX
from consumer_sdk.errors import TransientStoreError
from consumer_sdk.records import (
    AckFlush,
    Assignment,
    Checkpoint,
    Committed,
    Message,
    OutcomeKind,
    Start,
)
from tests.adapters.pulsar.scripted import Client, Native, Owner, adapter_on

TOPIC = "persistent://public/default/a"
NOBODY = Committed(Checkpoint())


class Asking(Owner):
    """An owner with a store, which asks where the cursor is.

    Attributes:
        adapter: whose it is.
        told: the answers.
        ended: assignments that were lost.
        failures: how often the store is away.
    """

    adapter: PulsarAdapter

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Committed | None] = []
        self.ended: list[Assignment] = []
        self.failures = 0

    async def assigned(self, assignments: Sequence[Assignment]) -> Mapping[Assignment, Start]:
        """From the cursor."""
        found = await self.adapter.committed(assignments)
        self.told += found.values()
        if self.failures:
            self.failures -= 1
            raise TransientStoreError("away")
        return await super().assigned(assignments)

    def lost(self, assignments: Sequence[Assignment]) -> None:
        """Closes trackers."""
        self.ended += assignments


class Bench:
    """An adapter of one topic, of which all below entry 50 is written down."""

    def __init__(self, adapter: PulsarAdapter, client: Client, owner: Asking) -> None:
        self.adapter, self.client, self.owner = adapter, client, owner
        assert adapter._opened is not None
        (self.subscriber,) = adapter._opened.subscribers.values()
        self.subscriber.resets = CursorResets(180.0, written=place(50))

    @property
    def native(self) -> Native:
        """The one that was made."""
        (native,) = self.client.made[TOPIC]
        return native

    def comes(self, *entries: int) -> None:
        """Records of these entries, from the broker."""
        held = self.owner.granted[0]  # whose it is, a run says
        messages: list[Message] = [NativeMessage.make(held, place(n), b"") for n in entries]
        places = [place(n) for n in entries]
        whole = Delivery(messages, len(messages), places, messages)
        self.subscriber._deliver(ascending(whole, cuts_of(places, range(1, len(places)))))

    async def entries(self) -> list[tuple[Assignment, list[int]]]:
        """What is fetched, and for whom."""
        runs = await self.adapter.fetch(max_records=100, max_bytes=1 << 20, max_wait=0.1)
        return [(run.assignment, [m.position[1] for m in run.messages]) for run in runs]

    async def until_granted(self, times: int) -> None:
        """Waits for so many grants."""
        async with asyncio.timeout(300):
            while len(self.owner.granted) < times or not self.subscriber.is_open:
                await asyncio.sleep(0.01)


def place(entry: int) -> tuple[int, int, int]:
    """Of a record that was not batched."""
    return 1, entry, LAST_BATCH_INDEX


@pytest.fixture(params=["exclusive", "failover"])
async def bench(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[Bench]:
    """It reads."""
    monkeypatch.setattr(session, "FIRST_BACKOFF", 0.01)
    client, owner = Client(), Asking()
    adapter = adapter_on(client, monkeypatch, "a", type=request.param)
    owner.adapter = adapter
    await adapter.open(owner)
    assert adapter._opened is not None
    (subscriber,) = adapter._opened.subscribers.values()
    subscriber.activate()
    async with asyncio.timeout(300):
        while not subscriber.is_open:
            await asyncio.sleep(0.01)
            subscriber.activate()
    yield Bench(adapter, client, owner)
    await adapter.aclose()


async def test_reset_begins_a_new_epoch_there_on_the_same_consumer(bench: Bench) -> None:
    """What was received before comes again behind it; nobody else gets between."""
    first = bench.subscriber.assignment
    bench.comes(60, 61)
    bench.comes(62, 63, 10, 11)
    bench.comes(12, 13)
    await bench.until_granted(2)
    second = bench.owner.granted[1]
    assert bench.owner.ended == [first]
    assert await bench.entries() == [(second, [10, 11, 12, 13])]
    assert not bench.native.is_closed


async def test_owner_is_told_of_the_place_until_it_has_begun_there(bench: Bench) -> None:
    """A store that is away for a moment hears of it all the same, and later of nothing."""
    bench.owner.failures = 1
    bench.comes(60)
    bench.comes(10)
    await bench.until_granted(2)
    there = Committed(Checkpoint(resume=place(10)), is_foreign=True)
    assert bench.owner.told == [NOBODY, there, there]
    assert await bench.adapter.committed([bench.owner.granted[1]]) == {
        bench.owner.granted[1]: NOBODY
    }


async def test_second_reset_farther_back_is_followed_at_once(bench: Bench) -> None:
    """One to the place of the first is not: it looks like a broker that died."""
    bench.comes(10, 11)
    await bench.until_granted(2)
    bench.comes(10, 11)
    assert bench.subscriber.assignment is bench.owner.granted[1]
    bench.comes(9, 10, 11)
    await bench.until_granted(3)
    assert await bench.entries() == [(bench.owner.granted[2], [9, 10, 11])]


async def test_what_is_settled_and_comes_again_is_said_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator's reset may be why, and is not followed."""
    assert bench.subscriber.resets is not None
    bench.comes(60, 61, 62, 63)
    bench.subscriber.resets.acked(place(62))
    bench.comes(60)
    bench.comes(61)
    bench.comes(62, 63, 64)
    said = [record.getMessage() for record in caplog.records]
    assert [("from (1, 60, " in text, "An operator's reset" in text) for text in said] == [
        (True, True)
    ]


async def test_acks_wait_for_what_comes_after_a_reconnect_and_are_none_after_a_reset(
    bench: Bench,
) -> None:
    """The broker would take them for acks of what is to come again."""
    flush = AckFlush(bench.owner.granted[0], 1, Checkpoint(), [(place(60), "sixty")])
    bench.comes(60)
    _lose_connection(bench.subscriber)
    commit = asyncio.create_task(bench.adapter.commit([flush]))
    await asyncio.sleep(0)
    bench.comes(10)
    (outcome,) = await commit
    assert (outcome.kind, bench.native.acks) == (OutcomeKind.FENCED, [])


async def test_acks_after_a_reconnect_are_sent_with_the_first_record(bench: Bench) -> None:
    """Nothing was set back."""
    flush = AckFlush(bench.owner.granted[0], 1, Checkpoint(), [(place(60), "sixty")])
    bench.comes(60)
    _lose_connection(bench.subscriber)
    commit = asyncio.create_task(bench.adapter.commit([flush]))
    await asyncio.sleep(0)
    assert not bench.native.acks
    bench.comes(60)
    (outcome,) = await commit
    assert (outcome.kind, bench.native.acks) == (OutcomeKind.SENT, [("sixty", False)])


def _lose_connection(subscriber: Subscriber) -> None:
    assert subscriber.resets is not None
    subscriber.resets.look(0.0, is_connected=False, is_hungry=False)


async def test_native_consumer_that_is_given_up_leaves_no_reset_behind(bench: Bench) -> None:
    """Somebody else may have gone on from there meanwhile."""
    bench.subscriber.reset_to = place(10)
    await bench.subscriber.unsubscribe_natively()
    assert bench.subscriber.committed == NOBODY


async def test_queue_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records come in any order."""
    client, owner = Client(), Owner()
    adapter = adapter_on(client, monkeypatch, "a", type="shared")
    await adapter.open(owner)
    assert adapter._opened is not None
    (subscriber,) = adapter._opened.subscribers.values()
    async with asyncio.timeout(300):
        while not subscriber.is_open:
            await asyncio.sleep(0.01)
    subscriber.look()
    assert subscriber.resets is None
    await adapter.aclose()
