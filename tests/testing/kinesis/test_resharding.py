"""Claims about shards that split, merge and expire."""

import pytest

from consumer_sdk.adapters.kinesis.service.service import IteratorStart
from consumer_sdk.testing.kinesis import FakeKinesis, Quirks, RefusedError
from consumer_sdk.testing.kinesis.reading import Answer
from tests.testing.kinesis.clock import EPOCH, HandClock

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
HORIZON = IteratorStart("TRIM_HORIZON")


def read(kinesis: FakeKinesis, shard: str, start: IteratorStart = HORIZON) -> Answer:
    """One GetRecords."""
    return kinesis.get_records(kinesis.shard_iterator("orders", shard, start))


def test_split_shares_the_hash_range(kinesis: FakeKinesis) -> None:
    """Two children side by side take what the parent took; both name it."""
    parent = kinesis.stream("orders").shard(FIRST)
    low, high = kinesis.split("orders", FIRST)
    assert (low.hashes[0], high.hashes[1]) == parent.hashes
    assert low.hashes[1] + 1 == high.hashes[0]
    assert low.parents == high.parents == (FIRST,)


def test_merge_names_parent_and_adjacent_parent(kinesis: FakeKinesis) -> None:
    """In the order of the request, whichever lies lower."""
    child = kinesis.merge("orders", SECOND, FIRST)
    assert child.parents == (SECOND, FIRST)
    assert child.hashes == (0, 2**128 - 1)


def test_every_key_has_one_open_shard_after_a_chain(kinesis: FakeKinesis) -> None:
    """Kinesis trap 20: A, B → C → E, F; records go to the youngest."""
    middle = kinesis.merge("orders", FIRST, SECOND)
    youngest = kinesis.split("orders", middle.id)
    taken = {kinesis.put("orders", b"x", str(key))[0].id for key in range(20)}
    assert taken == {shard.id for shard in youngest}


def test_sequence_numbers_of_children_are_above_the_parents(kinesis: FakeKinesis) -> None:
    """Within one second too: even the start of a child is above the end of its parent."""
    _, record = kinesis.put("orders", b"x", shard=FIRST)
    children = kinesis.split("orders", FIRST)
    end = kinesis.stream("orders").shard(FIRST).end
    assert end is not None
    assert record.sequence < end < min(child.start for child in children)


def test_child_sixteen_is_above_its_parent_too(clock: HandClock) -> None:
    """The shard's number takes part in the sequence number with its last digit: 16 is 0 there."""
    kinesis = FakeKinesis(clock)
    kinesis.create_stream("orders", 16)
    parent = kinesis.stream("orders").shard("shardId-000000000015")
    low, _ = kinesis.split("orders", parent.id)
    assert parent.end is not None
    assert parent.end < low.start


def test_closed_shard_takes_no_record(kinesis: FakeKinesis) -> None:
    """Nor can it be split or merged again."""
    kinesis.split("orders", FIRST)
    with pytest.raises(RefusedError):
        kinesis.put("orders", b"x", shard=FIRST)
    with pytest.raises(RefusedError):
        kinesis.split("orders", FIRST)
    with pytest.raises(RefusedError):
        kinesis.merge("orders", FIRST, SECOND)


def test_shards_that_are_not_neighbours_cannot_be_merged(kinesis: FakeKinesis) -> None:
    """The outer quarter and the other half leave a hole."""
    low, _ = kinesis.split("orders", FIRST)
    with pytest.raises(RefusedError, match="InvalidArgument"):
        kinesis.merge("orders", low.id, SECOND)


def test_last_records_of_a_closed_shard_come_without_next(kinesis: FakeKinesis) -> None:
    """Kinesis trap 20: null *with* records, and the children's names."""
    kinesis.put("orders", b"x", shard=FIRST)
    children = kinesis.split("orders", FIRST)
    answer = read(kinesis, FIRST)
    assert (len(answer.records), answer.next, answer.children) == (1, None, [*children])


def test_page_before_the_end_of_a_closed_shard_has_a_next(kinesis: FakeKinesis) -> None:
    """Closed is not ended: there is more to read."""
    for _ in range(3):
        kinesis.put("orders", b"x", shard=FIRST)
    kinesis.split("orders", FIRST)
    answer = kinesis.get_records(kinesis.shard_iterator("orders", FIRST, HORIZON), 2)
    assert answer.next is not None
    assert not answer.children
    assert kinesis.get_records(answer.next, 2).next is None


def test_null_may_come_one_empty_answer_later(clock: HandClock) -> None:
    """Kinesis trap 20: as kinesalite does it, which names no children either."""
    quirks = Quirks(null_with_last_records=False, names_children=False)
    kinesis = FakeKinesis(clock, quirks=quirks)
    kinesis.create_stream("orders")
    kinesis.put("orders", b"x", shard=FIRST)
    kinesis.split("orders", FIRST)
    answer = read(kinesis, FIRST)
    assert answer.next is not None
    last = kinesis.get_records(answer.next)
    assert (len(answer.records), last.records, last.next, last.children) == (1, [], None, ())


def test_closed_shard_without_records_ends_at_once(kinesis: FakeKinesis) -> None:
    """Kinesis trap 20: closed and empty at the start; LATEST of it is its end as well."""
    kinesis.split("orders", FIRST)
    for start in (HORIZON, IteratorStart("LATEST")):
        answer = read(kinesis, FIRST, start)
        assert (answer.records, answer.next, len(answer.children)) == ([], None, 2)


def test_end_of_a_closed_shard_can_be_read_after(kinesis: FakeKinesis) -> None:
    """Its ending sequence number is a place: nothing comes after it."""
    kinesis.put("orders", b"x", shard=FIRST)
    kinesis.split("orders", FIRST)
    end = kinesis.stream("orders").shard(FIRST).end
    answer = read(kinesis, FIRST, IteratorStart("AFTER_SEQUENCE_NUMBER", end))
    assert (answer.records, answer.next) == ([], None)


def test_closed_shard_vanishes_with_its_last_record(kinesis: FakeKinesis, clock: HandClock) -> None:
    """Kinesis trap 20: the parent expired unread; its children still name it."""
    kinesis.put("orders", b"x", shard=FIRST)
    kinesis.split("orders", FIRST)
    kinesis.trim("orders", EPOCH)
    assert FIRST in {shard.id for shard in kinesis.shards("orders")}
    clock.now = 10
    kinesis.trim("orders", EPOCH + 1)
    shards = kinesis.shards("orders")
    assert FIRST not in {shard.id for shard in shards}
    assert [shard.parents for shard in shards] == [(), (FIRST,), (FIRST,)]
    with pytest.raises(RefusedError, match="ResourceNotFoundException"):
        kinesis.shard_iterator("orders", FIRST, HORIZON)


def test_closed_shard_stays_until_its_closing_has_expired(
    kinesis: FakeKinesis, clock: HandClock
) -> None:
    """Without any record too; it is what tells that there was a parent."""
    kinesis.split("orders", FIRST)
    clock.now = 10
    kinesis.trim("orders", EPOCH)
    assert FIRST in {shard.id for shard in kinesis.shards("orders")}
    kinesis.trim("orders", EPOCH + 1)
    assert FIRST not in {shard.id for shard in kinesis.shards("orders")}


def test_open_shard_stays_when_all_has_expired(kinesis: FakeKinesis, clock: HandClock) -> None:
    """It is empty, and takes records still."""
    kinesis.put("orders", b"x", shard=FIRST)
    clock.now = 10
    kinesis.trim("orders", EPOCH + 10)
    assert read(kinesis, FIRST).records == []
    assert kinesis.put("orders", b"y", shard=FIRST)[0].id == FIRST


def test_new_shards_may_be_listed_late(clock: HandClock) -> None:
    """Kinesis trap 20: a parent has ended, and its children are not in the list yet."""
    kinesis = FakeKinesis(clock, quirks=Quirks(list_lag=2))
    kinesis.create_stream("orders")
    kinesis.split("orders", FIRST)
    assert [shard.id for shard in kinesis.shards("orders")] == [FIRST]
    clock.now = 2
    assert len(kinesis.shards("orders")) == 3


def test_children_may_be_listed_before_the_parent_ends(clock: HandClock) -> None:
    """Kinesis trap 20: a reader of the parent is told a little later."""
    kinesis = FakeKinesis(clock, quirks=Quirks(close_lag=2))
    kinesis.create_stream("orders")
    kinesis.split("orders", FIRST)
    assert len(kinesis.shards("orders")) == 3
    answer = read(kinesis, FIRST)
    assert (answer.next is None, answer.children) == (False, ())
    clock.now = 2
    answer = read(kinesis, FIRST)
    assert (answer.next is None, len(answer.children)) == (True, 2)
