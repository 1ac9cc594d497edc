"""Checkpoints out of one store and into another: whole, forwards, and past whoever owns them."""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Container, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumer_sdk import Consumer, Message
from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.errors import (
    CheckpointFormatError,
    FencedError,
    PartitionLostError,
    StoreError,
    TransientStoreError,
)
from consumer_sdk.records import Assignment, Checkpoint, Comparison, OutcomeKind, Partition
from consumer_sdk.stores import (
    Entry,
    Imported,
    ImportRefusedError,
    LocalStore,
    MemoryStore,
    ZooKeeperStore,
    import_checkpoints,
)
from consumer_sdk.stores.zookeeper_tree import Znode
from consumer_sdk.testing import MemoryAdapter, MemoryBroker
from consumer_sdk.testing.servers import ZooKeeperEndpoint
from tests.stores.exchange_world import (
    FIRST,
    GROUP,
    MAKERS,
    SECOND,
    checkpoints,
    entries,
    entry,
    exported,
    file_of,
    opened,
    own,
    stored,
)
from tests.stores.fake_zookeeper import FakeZooKeeper, store_on
from tests.trackers.codec import sign

T = TypeVar("T")

AT_41, AT_99 = Checkpoint(41, 42), Checkpoint(99, 100)
WITH_RANGES = Checkpoint(41, 42, ((50, 59),), {42: (2, 1.5)}, identity="abc")


async def into_all(found: Sequence[Entry], *stores: CheckpointStore) -> None:
    """From each store into the next one; all have the same in the end, and export the same."""
    data = b""
    for store in stores:
        if data:
            done = await import_checkpoints(store, file_of(data))
            assert done == Imported(written=len(found), kept=0)
        else:
            await import_checkpoints(store, found)
        data = await exported(store)
        partitions = [e.partition for e in found if e.id is not None]
        texts = [e.text for e in found if e.id is not None]
        assert await stored(store, partitions) == texts
        assert await store.pins(GROUP) == {e.stream: e.text for e in found if e.id is None}
        assert data == await exported(stores[0])


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(entries())
def test_checkpoints_go_through_a_file_unchanged(found: list[Entry]) -> None:
    """Byte by byte, whatever the names, positions, identities and times."""

    async def move(folder: str) -> None:
        async with opened(LocalStore(Path(folder) / "state.db")) as local:
            await into_all(found, MemoryStore(), local, MemoryStore())

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        runner.run(move(folder))


@pytest.mark.zookeeper
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(found=entries())
def test_checkpoints_go_through_a_real_zookeeper_unchanged(
    zookeeper_server: ZooKeeperEndpoint, found: list[Entry]
) -> None:
    """From a file into znodes, from there into a file and into memory."""

    async def move(folder: str) -> None:
        root = f"/exchange-{uuid.uuid4().hex}"
        async with AsyncExitStack() as stack:
            local, zookeeper, other = [
                await stack.enter_async_context(opened(store))
                for store in (
                    LocalStore(Path(folder) / "state.db"),
                    ZooKeeperStore(zookeeper_server.hosts, root=root),
                    LocalStore(Path(folder) / "other.db"),
                )
            ]
            await into_all(found, local, zookeeper, other, MemoryStore())

    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        runner.run(move(folder))


async def test_export_of_one_stream_leaves_the_others_out() -> None:
    """Its partitions, and the starts pinned for any identity of it and any application."""
    store, others = MemoryStore(), Partition("payments", "0")
    await own(store, entry(AT_41), entry(AT_41, others))
    for name in ("orders", "orders@abc", "payments", "payments2", "payments@abc", "payments#v2"):
        await store.pin(GROUP, name, "time:1")

    found = list(file_of(await exported(store, stream="payments")))
    assert [(e.stream, e.id) for e in found] == [
        ("payments", None),
        ("payments#v2", None),
        ("payments@abc", None),
        ("payments", "0"),
    ]


async def test_export_of_nothing_is_a_file_that_imports_nothing() -> None:
    """A group without checkpoints."""
    data = await exported(MemoryStore())

    assert await import_checkpoints(MemoryStore(), file_of(data)) == Imported(0, 0)


async def test_export_refuses_what_no_import_would_take() -> None:
    """A backup that cannot be read back is found out while there is something to back up."""
    store = MemoryStore()
    await own(store, entry(AT_41), replace_text(entry(AT_41, SECOND), "text"))

    with pytest.raises(CheckpointFormatError, match="orders/1"):
        await exported(store)


def resigned(text: str, **fields: object) -> str:
    """A checkpoint with other fields, and a checksum that is right all the same."""
    body = json.loads(text) | fields
    del body["crc32"]
    return sign(body)


def replace_text(found: Entry, text: str) -> Entry:
    """The entry with another text."""
    return found._replace(text=text)


# -- what may be overwritten ------------------------------------------------------------------

TABLE: dict[str, tuple[Checkpoint, Checkpoint, str | None]] = {
    "further": (AT_99, AT_41, None),
    "further by a range": (WITH_RANGES, AT_41, None),
    "ended": (replace(AT_41, ended=True), AT_99, None),
    "of a new application": (replace(AT_99, application="v2"), AT_41, None),
    "over a start that was pinned": (AT_41, Checkpoint(None, 7), None),
    "behind": (AT_41, AT_99, "the store is ahead"),
    "behind by a range": (AT_41, WITH_RANGES, "the store is ahead"),
    "of a partition that has ended": (AT_99, replace(AT_41, ended=True), "the store is ahead"),
    "further and behind": (AT_99, Checkpoint(41, 42, ((200, 210),)), "the other way round"),
    "another start pinned": (Checkpoint(None, 7), Checkpoint(None, 90), "starts at 7"),
    "a later start pinned": (Checkpoint(None, 90), Checkpoint(None, 7), "starts at 90"),
    "a later start, with a range": (
        Checkpoint(None, 90, ((100, 110),)),
        Checkpoint(None, 7),
        "starts at 90",
    ),
    "a later start that was reached": (Checkpoint(95, 200, ((300, 310),)), Checkpoint(6, 7), None),
    "of another application": (AT_99, replace(AT_41, application="v2"), "application 'v2'"),
    "another incarnation": (
        replace(AT_99, identity="new"),
        replace(AT_41, identity="old"),
        "identities",
    ),
}


@pytest.mark.parametrize("case", TABLE)
async def test_import_moves_a_partition_forwards_only(case: str) -> None:
    """What settles all that the store has is written; else nothing is, or it is forced."""
    mine, theirs, refusal = TABLE[case]
    store = MemoryStore()
    await own(store, entry(theirs))

    if refusal is None:
        assert await import_checkpoints(store, [entry(mine)]) == Imported(1, 0)
    else:
        with pytest.raises(ImportRefusedError, match=refusal):
            await import_checkpoints(store, [entry(AT_41, SECOND), entry(mine)])
        assert await stored(store, [FIRST, SECOND]) == [entry(theirs).text, None]
        assert await import_checkpoints(store, [entry(mine)], force=True) == Imported(1, 0)
    assert await stored(store, [FIRST]) == [entry(mine).text]


@given(st.data(), st.sampled_from(sorted(MAKERS)))
def test_import_never_unsettles_a_record(data: st.DataObject, broker: str) -> None:
    """All that was settled still is, and no record that was wanted is skipped; or it is refused."""
    drawn = (data.draw(checkpoints(MAKERS[broker][0])) for _ in range(2))
    mine, theirs = (replace(each, identity=None, application=None) for each in drawn)

    async def move() -> None:
        store = MemoryStore()
        await own(store, entry(theirs, broker=broker))
        try:
            done = await import_checkpoints(store, [entry(mine, broker=broker)])
        except ImportRefusedError:
            assert mine.compare(theirs) is not Comparison.AHEAD or mine.start != theirs.start
            done = Imported(0, 1)
        left = mine if done.written else theirs
        assert left.covers(theirs)
        wanted = theirs.start
        assert wanted is None or left.is_settled(wanted) or (left.start or wanted) <= wanted
        assert await stored(store, [FIRST]) == [entry(left, broker=broker).text]

    with asyncio.Runner() as runner:
        runner.run(move())


@pytest.mark.parametrize("text", ["text", "{}", '{"version":9}', "", "[" * 10_000])
async def test_text_that_cannot_be_compared_is_overwritten_by_force_only(text: str) -> None:
    """Of a newer version, or damaged."""
    store = MemoryStore()
    await own(store, replace_text(entry(AT_41), text))

    with pytest.raises(ImportRefusedError, match="cannot be compared"):
        await import_checkpoints(store, [entry(AT_99)])
    await import_checkpoints(store, [entry(AT_99)], force=True)
    assert await stored(store, [FIRST]) == [entry(AT_99).text]


async def test_checkpoint_of_another_broker_is_not_overwritten() -> None:
    """Of the same stream and partition, but of Kinesis: whose positions say nothing of ours."""
    store = MemoryStore()
    await own(store, entry(Checkpoint((5, 0), (5, 0)), broker="kinesis"))

    with pytest.raises(ImportRefusedError, match="broker 'kinesis'"):
        await import_checkpoints(store, [entry(AT_41)])


async def test_positions_of_two_shapes_cannot_be_compared() -> None:
    """Of a subscription, and of a consumer group of the in-memory broker."""
    store = MemoryStore()
    await own(store, entry(AT_41, broker="memory"))

    with pytest.raises(ImportRefusedError, match="cannot be compared"):
        await import_checkpoints(store, [entry(Checkpoint((5, 0), (5, 0)), broker="memory")])


async def test_import_done_again_changes_nothing() -> None:
    """Also under a consumer that has the partition since: it is not even fenced."""
    source, target = MemoryStore(), MemoryStore()
    await own(source, entry(AT_41), entry(WITH_RANGES, SECOND))
    await source.pin(GROUP, "orders", "time:1")
    data = await exported(source)
    await import_checkpoints(target, file_of(data))
    owner = Assignment(FIRST, 1)
    await target.claim(GROUP, [owner])

    assert await import_checkpoints(target, file_of(data)) == Imported(written=0, kept=3)
    (outcome,) = await target.save(GROUP, [StoreItem(owner, entry(AT_99).text)])
    assert outcome.kind is OutcomeKind.DURABLE


async def test_store_that_settles_the_same_keeps_what_else_it_knows() -> None:
    """Identity and attempts of the store are newer than those of an export."""
    known = replace(AT_41, identity="abc", attempts={42: (3, 1.0)})
    store = MemoryStore()
    await own(store, entry(known))

    assert await import_checkpoints(store, [entry(AT_41)]) == Imported(0, 1)
    assert await stored(store, [FIRST]) == [entry(known).text]


async def test_deleted_checkpoint_can_be_imported_again() -> None:
    """An operator who deletes one too many has the export."""
    store = MemoryStore()
    await own(store, entry(AT_41))
    data = await exported(store)
    await store.delete(GROUP, [FIRST])

    assert await import_checkpoints(store, file_of(data)) == Imported(1, 0)
    assert await exported(store) == data


async def test_dry_run_says_what_would_be_written_and_writes_nothing() -> None:
    """No claim either: an owner is not disturbed."""
    store = MemoryStore()
    (owner,) = await own(store, entry(AT_41))
    found = [Entry("", GROUP, "orders", None, "time:1"), entry(AT_99), entry(AT_41, SECOND)]

    assert await import_checkpoints(store, found, dry_run=True) == Imported(3, 0)
    assert await stored(store, [FIRST, SECOND]) == [entry(AT_41).text, None]
    assert await store.pins(GROUP) == {}
    (outcome,) = await store.save(GROUP, [StoreItem(owner, entry(AT_41).text)])
    assert outcome.kind is OutcomeKind.DURABLE


async def test_other_pinned_start_is_refused_and_never_replaced() -> None:
    """A group's start is pinned once; force imports the rest."""
    store = MemoryStore()
    await store.pin(GROUP, "orders", "time:9")
    found = [Entry("a file", GROUP, "orders", None, "time:1"), entry(AT_41)]

    with pytest.raises(ImportRefusedError, match="'time:9' is pinned"):
        await import_checkpoints(store, found)
    assert await store.list(GROUP) == []
    assert await import_checkpoints(store, found, force=True) == Imported(written=1, kept=1)
    assert await store.pins(GROUP) == {"orders": "time:9"}


async def test_broker_of_ones_own_needs_its_reader() -> None:
    """Whoever has written an adapter says how its positions are read."""
    text = entry(AT_41).text
    checkpoint = replace_text(entry(AT_41), resigned(text, broker="carrots"))

    with pytest.raises(CheckpointFormatError, match="'carrots' are not known"):
        await import_checkpoints(MemoryStore(), [checkpoint])
    done = await import_checkpoints(MemoryStore(), [checkpoint], readers={"carrots": int})
    assert done == Imported(1, 0)


# -- who owns the partition -------------------------------------------------------------------


async def test_import_fences_a_running_owner_and_keeps_the_fence() -> None:
    """The owner's next save is refused; whoever has an older lease is kept out, as before."""
    source, target = MemoryStore(), MemoryStore()
    await own(source, entry(AT_99), fence=1000)
    (owner,) = await own(target, entry(AT_41), fence=7)

    await import_checkpoints(target, file_of(await exported(source)))
    (outcome,) = await target.save(GROUP, [StoreItem(owner, entry(AT_41).text)])
    assert outcome.kind is OutcomeKind.FENCED
    older, equal = Assignment(FIRST, 1, 6), Assignment(FIRST, 2, 7)
    answers = await target.claim(GROUP, [older, equal])
    assert getattr(answers[older], "kind", None) is OutcomeKind.FENCED
    assert answers[equal] == entry(AT_99).text


async def test_import_under_leases_with_live_members_is_refused() -> None:
    """Leases say that consumers run: they have to be stopped, or it is forced."""
    store = MemoryStore()
    leases = store.leases(GROUP, "orders")
    await leases.renew()

    with pytest.raises(ImportRefusedError, match="consumers of the stream run"):
        await import_checkpoints(store, [entry(AT_41)])
    await import_checkpoints(store, [entry(AT_41)], force=True)
    assert await import_checkpoints(store, [entry(AT_41)]) == Imported(0, 1)
    await leases.aclose()
    assert await import_checkpoints(store, [entry(AT_99)]) == Imported(1, 0)


class Interfering:
    """Lets others do something right after the store has done its part."""

    def __init__(
        self, store: MemoryStore, seam: str, text: str, times: Container[int] = (0,)
    ) -> None:
        self.store, self.seam, self.text, self.times = store.handle(), seam, text, times
        self.calls = itertools.count()

    async def around(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
        """An owner claims and saves."""
        result = await call()
        if seam == self.seam and next(self.calls) in self.times:
            await own(self.store, replace_text(entry(AT_41), self.text))
        return result


@pytest.mark.parametrize("seam, call", [("peek", 0), ("peek", 1), ("claim", 0)])
async def test_what_an_owner_saves_meanwhile_is_not_overwritten(seam: str, call: int) -> None:
    """After it was compared, just before it is claimed, and just after."""
    first = MemoryStore()
    await own(first, entry(Checkpoint(5, 6)))
    ahead = entry(Checkpoint(500, 501)).text
    target = first.handle(faults=Interfering(first, seam, ahead, (call,)))

    with pytest.raises(ImportRefusedError, match="the store is ahead"):
        await import_checkpoints(target, [entry(AT_99)])
    assert await stored(first, [FIRST]) == [ahead]


async def test_owner_that_claims_back_once_does_not_stop_an_import() -> None:
    """A consumer that was fenced starts anew from what is stored; the import is done again."""
    first = MemoryStore()
    await own(first, entry(Checkpoint(5, 6)))
    target = first.handle(faults=Interfering(first, "claim", entry(Checkpoint(5, 6)).text))

    assert await import_checkpoints(target, [entry(AT_99)]) == Imported(1, 0)
    assert await stored(first, [FIRST]) == [entry(AT_99).text]


async def test_owner_that_always_claims_back_ends_the_import() -> None:
    """In bounded time, with an error that says what to do."""
    first = MemoryStore()
    await own(first, entry(Checkpoint(5, 6)))
    faults = Interfering(first, "claim", entry(Checkpoint(5, 6)).text, range(1000))

    with pytest.raises(FencedError, match="stop the group's consumers"):
        await import_checkpoints(first.handle(faults=faults), [entry(AT_99)])


async def test_imports_at_the_same_time_end_with_the_one_that_is_ahead() -> None:
    """Two files, two processes: each partition has the further checkpoint, whoever came last."""
    partitions = [Partition("orders", str(n)) for n in range(40)]
    first = MemoryStore()
    low = [entry(AT_41, p) for p in partitions]
    high = [entry(AT_99, p) for p in partitions]

    done = await asyncio.gather(
        import_checkpoints(first.handle(), low),
        import_checkpoints(first.handle(), high),
        return_exceptions=True,
    )
    assert all(isinstance(each, Imported | StoreError) for each in done)
    await import_checkpoints(first, high)
    assert await stored(first, partitions) == [e.text for e in high]


@pytest.mark.parametrize("seed", range(5))
async def test_same_import_twice_at_once_is_done_once(tmp_path: Path, seed: int) -> None:
    """Two sessions on one file: every checkpoint is there, and neither import fails."""
    found = [entry(AT_41, Partition("orders", str(n))) for n in range(100 + seed)]
    async with (
        opened(LocalStore(tmp_path / "state.db")) as mine,
        opened(LocalStore(tmp_path / "state.db")) as theirs,
    ):
        await asyncio.gather(*(import_checkpoints(store, found) for store in (mine, theirs)))
        assert await stored(mine, [e.partition for e in found]) == [e.text for e in found]


@pytest.mark.zookeeper
async def test_imports_race_in_a_real_zookeeper(zookeeper_server: ZooKeeperEndpoint) -> None:
    """Four sessions, two files: whatever one of them says, done again all is as far as it can be."""
    root = f"/exchange-{uuid.uuid4().hex}"
    partitions = [Partition("orders", str(number)) for number in range(200)]
    low, high = ([entry(c, partition) for partition in partitions] for c in (AT_41, AT_99))
    async with AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(
                opened(ZooKeeperStore(zookeeper_server.hosts, root=root))
            )
            for _ in range(4)
        ]
        imports = zip(sessions, [low, high] * 2, strict=True)
        done = await asyncio.gather(
            *(import_checkpoints(store, found) for store, found in imports),
            return_exceptions=True,
        )
        assert all(isinstance(each, Imported | ImportRefusedError | FencedError) for each in done)
        await import_checkpoints(sessions[0], high)
        assert await stored(sessions[0], partitions) == [e.text for e in high]


async def test_start_that_cannot_be_read_ends_an_export() -> None:
    """It is never left out: an import elsewhere would start the group somewhere else."""
    server = FakeZooKeeper()
    async with aclosing(store_on(server)) as store:
        await store.pin(GROUP, "orders@abc", "time:1")
        server.znodes["/sdk/billing/orders%40abc"] = Znode(b'{"start":7}', 5)
        with pytest.raises(CheckpointFormatError, match="/sdk/billing/orders%40abc"):
            await exported(store)


# -- what goes wrong --------------------------------------------------------------------------


class Failing:
    """Fails a call, before or after its effect."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.at, self.after = at, after

    async def around(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
        """The call with this number fails, with all that come after it."""
        self.at -= 1
        if self.at < 0 and not self.after:
            raise TransientStoreError("an outage")
        result = await call()
        if self.at < 0:
            raise TransientStoreError("an outage")
        return result


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(14))
async def test_import_that_an_outage_ended_is_done_again(at: int, *, after: bool) -> None:
    """Wherever it was: a transient error, each partition old or new, and a second run does it."""
    partitions = [Partition("orders", str(n)) for n in range(1100)]
    found = [Entry("", GROUP, "orders", None, "time:1"), *(entry(AT_41, p) for p in partitions)]
    store = MemoryStore()

    with pytest.raises(TransientStoreError, match="outage"):
        await import_checkpoints(store.handle(faults=Failing(at, after=after)), found)
    texts = await stored(store, partitions)
    assert all(text in {None, e.text} for text, e in zip(texts, found[1:], strict=True))
    done = await import_checkpoints(store, found)
    assert done.written + done.kept == len(found)
    assert await stored(store, partitions) == [e.text for e in found[1:]]
    assert await store.pins(GROUP) == {"orders": "time:1"}


async def test_cancelled_import_leaves_no_claim_behind() -> None:
    """A later import, and a consumer, find each partition old or new."""
    store = MemoryStore()
    entered = asyncio.Event()

    class Slow:
        async def around(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
            if seam == "save":
                entered.set()
                await asyncio.Event().wait()
            return await call()

    task = asyncio.create_task(import_checkpoints(store.handle(faults=Slow()), [entry(AT_41)]))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await stored(store, [FIRST]) == [None]
    assert await import_checkpoints(store, [entry(AT_41)]) == Imported(1, 0)


# -- a consumer goes on -----------------------------------------------------------------------


async def test_consumer_goes_on_from_what_was_imported(tmp_path: Path) -> None:
    """It reads what was settled nowhere, and no record that was settled in the other store."""
    broker = MemoryBroker()
    broker.create_stream("orders", partitions=1)
    for number in range(10):
        broker.append("orders", b"%d" % number)
    source = MemoryStore()
    settled = {b"0", b"1", b"2", b"5", b"7"}
    await consume(broker, source, lambda message: message.value in settled, 10)
    async with opened(LocalStore(tmp_path / "state.db")) as target:
        await import_checkpoints(target, file_of(await exported(source)))
        seen = await consume(broker, target, lambda _: True, 5)
    assert set(seen) == {b"3", b"4", b"6", b"8", b"9"}


async def test_running_consumer_goes_on_from_what_was_imported() -> None:
    """Its next flush is refused; it is granted the partition again, and reads on from there."""
    broker, store = MemoryBroker(), MemoryStore()
    broker.create_stream("orders", partitions=1)
    for number in range(10):
        broker.append("orders", b"%d" % number)
    consumer = Consumer(
        MemoryAdapter(broker, "orders", group=GROUP), store=store, drain_timeout=0.1
    )
    async with asyncio.timeout(30), consumer:
        first, second = [await anext(consumer) for _ in range(2)]
        first.ack()
        await consumer.flush()
        await import_checkpoints(store.handle(), [entry(Checkpoint(6, 7), broker="memory")])
        second.ack()
        with pytest.raises(PartitionLostError):
            await consumer.flush()
        assert [(await anext(consumer)).position for _ in range(3)] == [7, 8, 9]


async def consume(
    broker: MemoryBroker, store: CheckpointStore, accept: Callable[[Message], bool], count: int
) -> list[bytes]:
    """Takes ``count`` messages in a consumer of its own and settles some of them."""
    seen: list[bytes] = []
    consumer = Consumer(
        MemoryAdapter(broker, "orders", group=GROUP), store=store, drain_timeout=0.1
    )
    async with consumer:
        async for message in consumer:
            seen.append(message.value or b"")
            if accept(message):
                message.ack()
            if len(seen) == count:
                break
        await consumer.flush()
    return seen
