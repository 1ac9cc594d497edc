"""Imports past owners, beside other imports, and through outages."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Awaitable, Callable, Container, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from consumer_sdk.abc import StoreItem
from consumer_sdk.errors import (
    CheckpointFormatError,
    FencedError,
    StoreError,
    TransientStoreError,
)
from consumer_sdk.records import Assignment, Checkpoint, Outcome, OutcomeKind, Partition
from consumer_sdk.stores import (
    Entry,
    Imported,
    ImportRefusedError,
    LocalStore,
    MemoryStore,
    ZooKeeperStore,
    import_checkpoints,
)
from consumer_sdk.stores.exchange import exchange
from consumer_sdk.stores.fencing import refused
from consumer_sdk.stores.zookeeper.tree import Znode
from consumer_sdk.testing.servers import ZooKeeperEndpoint
from tests.stores.exchange_world import (
    AT_41,
    AT_99,
    FIRST,
    GROUP,
    SECOND,
    entry,
    exported,
    file_of,
    opened,
    own,
    replace_text,
    stored,
)
from tests.stores.fake_zookeeper import FakeZooKeeper, store_on

T = TypeVar("T")


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


async def test_live_members_are_said_once_and_do_not_keep_a_start_from_being_pinned() -> None:
    """One stream, however many of its partitions; a start that is pinned moves nobody."""
    store = MemoryStore()
    await store.leases(GROUP, "orders").renew()
    pin = Entry("here", GROUP, "orders", None, "time:1")

    assert await import_checkpoints(store, [pin]) == Imported(1, 0)
    with pytest.raises(ImportRefusedError) as caught:
        await import_checkpoints(store, [entry(AT_41), entry(AT_41, SECOND)])
    assert str(caught.value).count("stop them first") == 1


async def test_checkpoint_may_be_as_large_as_the_store_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A byte more is said before anything is written."""
    store, found = MemoryStore(), entry(AT_41)
    monkeypatch.setattr(store, "max_size", len(found.text) - 1)
    with pytest.raises(StoreError, match=rf"has {len(found.text)} bytes, the store takes"):
        await import_checkpoints(store, [found])
    monkeypatch.setattr(store, "max_size", len(found.text))
    assert await import_checkpoints(store, [found]) == Imported(1, 0)


async def test_store_without_leases_takes_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can say there whether consumers run."""
    store = MemoryStore()
    monkeypatch.setattr(store, "leases", lambda *_, **__: None)
    assert await import_checkpoints(store, [entry(AT_41)]) == Imported(1, 0)


async def test_entries_of_several_groups_go_to_their_own() -> None:
    """In any order; each group's start too."""
    store = MemoryStore()
    found = [
        entry(AT_41),
        entry(AT_99, group="other"),
        Entry("here", "other", "orders", None, "time:1"),
        entry(AT_41, SECOND),
        entry(AT_99, SECOND, group="other"),
    ]
    assert await import_checkpoints(store, found) == Imported(5, 0)
    for group, checkpoint in ((GROUP, AT_41), ("other", AT_99)):
        texts = [entry(checkpoint, partition).text for partition in (FIRST, SECOND)]
        assert await stored(store, [FIRST, SECOND], group) == texts
    assert (await store.pins(GROUP), await store.pins("other")) == ({}, {"orders": "time:1"})


class Counting:
    """Counts the calls of the store."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def around(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
        """Like the store."""
        self.calls.append(seam)
        return await call()


@pytest.mark.parametrize(
    "name, limit, looks", [("BATCH", 2, 3), ("BATCH", 3, 2), ("BATCH_SIZE", 2, 2)]
)
async def test_bounded_amount_is_in_memory_at_a_time(
    monkeypatch: pytest.MonkeyPatch, name: str, limit: int, looks: int
) -> None:
    """So many checkpoints, or the one with which they have more than so many characters."""
    found = [entry(AT_41, Partition("orders", str(number))) for number in range(6)]
    monkeypatch.setattr(exchange, name, limit * (1 if name == "BATCH" else len(found[0].text)))
    counting = Counting()
    await import_checkpoints(MemoryStore().handle(faults=counting), found, dry_run=True)
    assert counting.calls.count("peek") == looks


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


@pytest.mark.parametrize("force", [False, True])
async def test_start_that_is_pinned_meanwhile_stays(*, force: bool) -> None:
    """It is not counted as written; without force it ends the import, which says how far that was."""
    first = MemoryStore()
    looks = itertools.count(1)

    class Pinning:
        async def around(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
            result = await call()
            if seam == "pins" and next(looks) == 2:  # just before it is written
                await first.pin(GROUP, "orders", "time:2")
            return result

    found = [Entry("here", GROUP, name, None, "time:1") for name in ("a", "orders")]
    target = first.handle(faults=Pinning())
    if force:
        assert await import_checkpoints(target, found, force=True) == Imported(1, 1)
    else:
        words = "^1 were written, and stay: here: the start of 'orders' .*'time:2' is pinned"
        with pytest.raises(ImportRefusedError, match=words):
            await import_checkpoints(target, found)
    assert await first.pins(GROUP) == {"a": "time:1", "orders": "time:2"}


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

    words = "^0 were written, and stay.* stop the group's consumers"
    with pytest.raises(FencedError, match=words):
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
async def test_imports_that_race_end_as_far_as_can_be(zookeeper_server: ZooKeeperEndpoint) -> None:
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
@pytest.mark.parametrize(
    "at",
    [
        *(0, 1, 6, 13),
        *(pytest.param(at, marks=pytest.mark.campaign) for at in (2, 3, 4, 5, *range(7, 13))),
    ],
)
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


@pytest.mark.parametrize("kind", [StoreError, TransientStoreError])
async def test_checkpoint_that_could_not_be_saved_ends_the_import(
    monkeypatch: pytest.MonkeyPatch, kind: type[StoreError]
) -> None:
    """With the store's own reason, and whether that may pass."""
    store = MemoryStore()

    async def failing(_group: str, items: Sequence[object]) -> list[Outcome]:
        return [Outcome.retry(kind("no room")) for _ in items]

    monkeypatch.setattr(store, "save", failing)
    words = "^0 were written, and stay. here: orders/0 in group 'billing': no room: import again"
    with pytest.raises(StoreError, match=words) as caught:
        await import_checkpoints(store, [entry(AT_41)])
    assert type(caught.value) is kind


async def test_claim_that_is_refused_once_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner came first; nothing is compared with its refusal."""
    store = MemoryStore()
    claim, refusals = store.claim, [refused(None)]

    async def claiming(group: str, assignments: Sequence[Assignment]) -> Any:
        if refusals:
            return dict.fromkeys(assignments, refusals.pop())
        return await claim(group, assignments)

    monkeypatch.setattr(store, "claim", claiming)
    assert await import_checkpoints(store, [entry(AT_41)]) == Imported(1, 0)
    assert await stored(store, [FIRST]) == [entry(AT_41).text]


async def test_store_does_not_go_on_knowing_the_claims_of_an_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that runs for long would have those of each import."""
    store = MemoryStore()
    claim, forget = store.claim, store.forget
    known: set[Assignment] = set()

    async def claiming(group: str, assignments: Sequence[Assignment]) -> Any:
        known.update(assignments)
        return await claim(group, assignments)

    async def forgetting(assignments: Sequence[Assignment]) -> None:
        known.difference_update(assignments)
        await forget(assignments)

    monkeypatch.setattr(store, "claim", claiming)
    monkeypatch.setattr(store, "forget", forgetting)
    assert await import_checkpoints(store, [entry(AT_41), entry(AT_41, SECOND)]) == Imported(2, 0)
    assert not known


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
