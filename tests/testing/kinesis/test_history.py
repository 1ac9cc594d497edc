"""Claims that hold after any history of puts, splits, merges and trims."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.kinesis.service.service import IteratorStart
from consumer_sdk.testing.kinesis import FakeKinesis, FakeRecord, Quirks, ShardLimits
from tests.testing.kinesis.clock import HandClock

HORIZON = IteratorStart("TRIM_HORIZON")
KEYS = "abcdefgh"
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "split", "merge", "trim"]), st.integers(0, 99)),
    max_size=60,
)
QUIRKS = st.builds(
    Quirks,
    null_with_last_records=st.booleans(),
    names_children=st.booleans(),
    empty_pages=st.integers(0, 2),
)


@dataclass
class History:
    """A stream to which things happen, and what should be in it."""

    kinesis: FakeKinesis
    clock: HandClock
    stored: list[FakeRecord] = field(default_factory=list)

    def take(self, step: str, number: int) -> None:
        """One thing happens, a second after the last."""
        steps: Mapping[str, Callable[[int], None]] = {
            "put": self.put,
            "split": self.split,
            "merge": self.merge,
            "trim": self.trim,
        }
        steps[step](number)
        self.clock.now += 1

    def put(self, number: int) -> None:
        """A record of one of eight keys."""
        _, record = self.kinesis.put("orders", b"data", KEYS[number % len(KEYS)])
        self.stored.append(record)

    def split(self, number: int) -> None:
        """One of the open shards."""
        shards = self.kinesis.stream("orders").open_shards()
        self.kinesis.split("orders", shards[number % len(shards)].id)

    def merge(self, number: int) -> None:
        """Two neighbours, if there are."""
        shards = sorted(self.kinesis.stream("orders").open_shards(), key=lambda shard: shard.hashes)
        if len(shards) > 1:
            low = number % (len(shards) - 1)
            self.kinesis.merge("orders", shards[low].id, shards[low + 1].id)

    def trim(self, number: int) -> None:
        """What is older than some seconds."""
        before = self.clock.wall() - number % 20
        self.kinesis.trim("orders", before)
        self.stored = [record for record in self.stored if record.time >= before]


def history(steps: Sequence[tuple[str, int]], quirks: Quirks) -> History:
    """A stream that began with two shards."""
    clock = HandClock()
    kinesis = FakeKinesis(clock, quirks=quirks, limits=ShardLimits.none())
    kinesis.create_stream("orders", 2)
    told = History(kinesis, clock)
    for step in steps:
        told.take(*step)
    return told


def read_all(kinesis: FakeKinesis) -> list[FakeRecord]:
    """Reads each shard to its end or tip, parents first."""
    found: list[FakeRecord] = []
    for shard in kinesis.shards("orders"):  # in the order in which they were made
        iterator: str | None = kinesis.shard_iterator("orders", shard.id, HORIZON)
        while iterator is not None:
            answer = kinesis.get_records(iterator, 3)
            found += answer.records
            iterator = None if shard.closed is None and answer.behind == 0 else answer.next
    return found


@given(STEPS, QUIRKS)
def test_all_that_is_stored_is_read_once(steps: list[tuple[str, int]], quirks: Quirks) -> None:
    """And nothing else; whatever the service's manners are."""
    told = history(steps, quirks)
    assert sorted(record.sequence for record in read_all(told.kinesis)) == sorted(
        record.sequence for record in told.stored
    )


@given(STEPS)
def test_parents_first_keeps_the_order_of_each_key(steps: list[tuple[str, int]]) -> None:
    """What a consumer of many shards relies on; and their sequence numbers grow too."""
    told = history(steps, Quirks())
    found = read_all(told.kinesis)
    for key in KEYS:
        read = [record for record in found if record.key == key]
        assert read == [record for record in told.stored if record.key == key]
        assert read == sorted(read, key=lambda record: record.sequence)


@given(STEPS)
def test_open_shards_always_share_all_hash_keys(steps: list[tuple[str, int]]) -> None:
    """No hash key is without a shard, and none has two."""
    told = history(steps, Quirks())
    ranges = sorted(shard.hashes for shard in told.kinesis.stream("orders").open_shards())
    assert (ranges[0][0], ranges[-1][1]) == (0, 2**128 - 1)
    assert all(low[1] + 1 == high[0] for low, high in pairwise(ranges))


@given(STEPS)
def test_every_stored_record_is_a_place(steps: list[tuple[str, int]]) -> None:
    """AT its sequence number it is the first; AFTER it is what follows in its shard."""
    told = history(steps, Quirks())
    for shard in told.kinesis.shards("orders"):
        records = shard.stored()
        for index, record in enumerate(records):
            for kind, first in (("AT", index), ("AFTER", index + 1)):
                start = IteratorStart(f"{kind}_SEQUENCE_NUMBER", record.sequence)
                token = told.kinesis.shard_iterator("orders", shard.id, start)
                assert told.kinesis.get_records(token).records == list(records[first:])
