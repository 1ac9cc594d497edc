"""What an import may overwrite: forwards, nothing skipped, or not at all."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.abc import StoreItem
from consumer_sdk.errors import CheckpointFormatError, CheckpointMismatchError
from consumer_sdk.records import Assignment, Checkpoint, Comparison, OutcomeKind
from consumer_sdk.stores import (
    Entry,
    Imported,
    ImportRefusedError,
    MemoryStore,
    import_checkpoints,
)
from consumer_sdk.stores.exchange.verdicts import Judge, broker_of
from tests.stores.exchange_world import (
    AT_41,
    AT_99,
    FIRST,
    GROUP,
    MAKERS,
    SECOND,
    WITH_RANGES,
    checkpoints,
    entry,
    exported,
    file_of,
    own,
    replace_text,
    resigned,
    stored,
)

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


def test_refusals_are_all_counted_and_ten_are_quoted() -> None:
    """An operator who moves a thousand partitions reads a line, and knows how many there are."""
    judge = Judge({"kafka": int}, force=False)
    for number in range(10):
        assert not judge.refuse(entry(AT_41), f"reason {number}")
    with pytest.raises(ImportRefusedError, match=r"it stays: .*reason 9\. What is refused"):
        judge.raise_refusals("it stays")
    for number in range(10, 12):
        assert not judge.refuse(entry(AT_41), f"reason {number}")
    with pytest.raises(ImportRefusedError, match=r"reason 9; and 2 more\. "):
        judge.raise_refusals("it stays")


@pytest.mark.parametrize("case", [name for name, row in TABLE.items() if row[2] is not None])
def test_refused_entry_is_not_written(case: str) -> None:
    """Whatever else becomes of the import."""
    mine, theirs, _ = TABLE[case]
    judge = Judge({"kafka": int}, force=False)
    assert not judge.is_written(entry(mine), entry(theirs).text)


def test_start_at_the_end_of_what_is_settled_skips_nothing() -> None:
    """The store wants 8 first; an export that has settled 8, and no more, says so."""
    judge = Judge({"kafka": int}, force=False)
    pinned = Checkpoint(None, 8)
    assert judge.is_written(entry(Checkpoint(8, 9)), entry(pinned).text)
    judge.raise_refusals("nothing is refused")
    assert not judge.is_written(entry(Checkpoint(7, 9)), entry(pinned).text)


@pytest.mark.parametrize(
    "text, message",
    [
        ("text", "not a checkpoint: 'text'"),
        ("{}", "not a checkpoint: '{}'"),
        ("[1]", "not a checkpoint"),
        ('{"broker": 7}', "not a checkpoint: its broker is 7"),
    ],
)
def test_text_without_a_broker_is_no_checkpoint(text: str, message: str) -> None:
    """Before anything is compared with it."""
    with pytest.raises(CheckpointFormatError, match=message):
        broker_of(text)


def test_checked_entry_names_itself_in_its_error() -> None:
    """The file has many lines."""
    judge = Judge({"kafka": int}, force=False)
    judge.check(entry(AT_41))
    with pytest.raises(CheckpointFormatError, match=r"^here.*: not a checkpoint"):
        judge.check(replace_text(entry(AT_41), "text"))
    with pytest.raises(CheckpointMismatchError, match=r"^here"):
        judge.check(entry(AT_41)._replace(id="9"))


@pytest.mark.parametrize("ended", [False, True])
def test_entry_of_an_ended_partition_is_known(ended: bool) -> None:  # noqa: FBT001 - a parameter
    """Its lease is ended with it."""
    judge = Judge({"kafka": int}, force=False)
    assert judge.is_ended(entry(replace(AT_41, ended=ended))) is ended


async def test_broker_of_ones_own_needs_its_reader() -> None:
    """Whoever has written an adapter says how its positions are read."""
    text = entry(AT_41).text
    checkpoint = replace_text(entry(AT_41), resigned(text, broker="carrots"))

    with pytest.raises(CheckpointFormatError, match="'carrots' are not known"):
        await import_checkpoints(MemoryStore(), [checkpoint])
    done = await import_checkpoints(MemoryStore(), [checkpoint], readers={"carrots": int})
    assert done == Imported(1, 0)
