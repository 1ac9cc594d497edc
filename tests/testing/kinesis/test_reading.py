"""Claims about records, sequence numbers and iterators of the model."""

import pytest

from consumer_sdk.adapters.kinesis.service.service import IteratorStart
from consumer_sdk.testing.kinesis import FakeKinesis, Quirks, RefusedError, ShardLimits
from tests.testing.kinesis.clock import EPOCH, HandClock

SHARD = "shardId-000000000000"
HORIZON = IteratorStart("TRIM_HORIZON")
LATEST = IteratorStart("LATEST")


def put(kinesis: FakeKinesis, *data: bytes, shard: str = SHARD) -> list[int]:
    """Puts records into one shard; returns their sequence numbers."""
    return [kinesis.put("orders", each, shard=shard)[1].sequence for each in data]


def read(kinesis: FakeKinesis, start: IteratorStart, shard: str = SHARD) -> list[bytes]:
    """What one GetRecords gives from a start."""
    iterator = kinesis.shard_iterator("orders", shard, start)
    return [record.data for record in kinesis.get_records(iterator).records]


def refusal(kinesis: FakeKinesis, start: IteratorStart, shard: str = SHARD) -> str:
    """The code with which an iterator is refused."""
    with pytest.raises(RefusedError) as caught:
        kinesis.shard_iterator("orders", shard, start)
    return caught.value.code


def test_sequence_numbers_have_56_digits_and_grow(kinesis: FakeKinesis) -> None:
    """As on AWS; compared as text of one length they are in order too."""
    numbers = put(kinesis, b"a", b"b", b"c")
    assert numbers == sorted(set(numbers))
    assert {len(str(number)) for number in numbers} == {56}


def test_sequence_numbers_of_two_shards_differ(kinesis: FakeKinesis) -> None:
    """The shard is part of the number."""
    numbers = put(kinesis, b"a") + put(kinesis, b"a", shard="shardId-000000000001")
    assert len(set(numbers)) == 2


def test_key_goes_to_the_shard_of_its_hash(kinesis: FakeKinesis) -> None:
    """MD5 of the key lies in the shard's range; a given hash key takes its place."""
    shard, _ = kinesis.put("orders", b"x", "some key")
    assert shard.id == "shardId-000000000001"  # MD5 of it begins with 0xcd
    shard, _ = kinesis.put("orders", b"x", "some key", hash_value=0)
    assert shard.id == SHARD


@pytest.mark.parametrize(
    "kind,expected", [("AT_SEQUENCE_NUMBER", [b"b", b"c"]), ("AFTER_SEQUENCE_NUMBER", [b"c"])]
)
def test_iterator_at_a_sequence_number_begins_there(
    kinesis: FakeKinesis, kind: str, expected: list[bytes]
) -> None:
    """AT gives the record, AFTER what follows it."""
    second = put(kinesis, b"a", b"b", b"c")[1]
    assert read(kinesis, IteratorStart(kind, second)) == expected


def test_horizon_and_latest_are_the_two_ends(kinesis: FakeKinesis) -> None:
    """LATEST is resolved when the iterator is made, not when it is used."""
    put(kinesis, b"a")
    iterator = kinesis.shard_iterator("orders", SHARD, LATEST)
    put(kinesis, b"b")
    assert read(kinesis, HORIZON) == [b"a", b"b"]
    assert [record.data for record in kinesis.get_records(iterator).records] == [b"b"]


def test_timestamp_gives_what_arrived_then_or_later(kinesis: FakeKinesis, clock: HandClock) -> None:
    """A time after the last record is the tip."""
    put(kinesis, b"a")
    clock.now = 10
    put(kinesis, b"b")
    clock.now = 20
    assert read(kinesis, IteratorStart("AT_TIMESTAMP", time=EPOCH + 10)) == [b"b"]
    assert read(kinesis, IteratorStart("AT_TIMESTAMP", time=EPOCH + 11)) == []


def test_timestamp_to_come_is_refused(kinesis: FakeKinesis) -> None:
    """Seen on the servers: the response's Date header is the clock to go by."""
    start = IteratorStart("AT_TIMESTAMP", time=EPOCH + 1)
    assert refusal(kinesis, start) == "InvalidArgumentException"


def test_sequence_number_plus_one_is_refused(kinesis: FakeKinesis) -> None:
    """Seen on the servers: there is no "next" position."""
    last = put(kinesis, b"a")[0]
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        assert refusal(kinesis, IteratorStart(kind, last + 1)) == "InvalidArgumentException"


def test_sequence_number_of_another_shard_is_refused(kinesis: FakeKinesis) -> None:
    """A position belongs to its shard."""
    number = put(kinesis, b"a")[0]
    start = IteratorStart("AT_SEQUENCE_NUMBER", number)
    assert refusal(kinesis, start, "shardId-000000000001") == "InvalidArgumentException"


def test_sequence_number_that_was_not_given_yet_is_refused(kinesis: FakeKinesis) -> None:
    """A number of the right form, of a record to come, is not one of the shard's."""
    first, second = put(kinesis, b"a", b"b")
    start = IteratorStart("AT_SEQUENCE_NUMBER", second + (second - first))
    assert refusal(kinesis, start) == "InvalidArgumentException"


def test_iterator_can_be_used_again(kinesis: FakeKinesis) -> None:
    """An answer that was lost on its way is asked for once more."""
    put(kinesis, b"a")
    iterator = kinesis.shard_iterator("orders", SHARD, HORIZON)
    assert kinesis.get_records(iterator).records == kinesis.get_records(iterator).records


def test_iterator_expires_after_five_minutes(kinesis: FakeKinesis, clock: HandClock) -> None:
    """Kinesis trap 23: it can be used for 300 s, not longer; the next one has its own time."""
    iterator = kinesis.shard_iterator("orders", SHARD, HORIZON)
    clock.now = 300
    following = kinesis.get_records(iterator).next
    clock.now = 301
    with pytest.raises(RefusedError, match="ExpiredIteratorException"):
        kinesis.get_records(iterator)
    assert following is not None
    assert kinesis.get_records(following).behind == 0


def test_made_up_iterator_is_refused(kinesis: FakeKinesis) -> None:
    """It is the argument that is wrong."""
    with pytest.raises(RefusedError, match="InvalidArgumentException"):
        kinesis.get_records("bm8gaXRlcmF0b3I=")


def test_limit_is_kept_and_reading_goes_on(kinesis: FakeKinesis, clock: HandClock) -> None:
    """Three records in pages of two; only the last page is at the tip."""
    put(kinesis, b"a", b"b", b"c")
    clock.now = 5
    first = kinesis.get_records(kinesis.shard_iterator("orders", SHARD, HORIZON), 2)
    assert first.next is not None
    second = kinesis.get_records(first.next, 2)
    assert [len(first.records), len(second.records)] == [2, 1]
    assert [first.behind, second.behind] == [5000, 0]


def test_answer_ends_at_10_mib(kinesis: FakeKinesis) -> None:
    """Records of a MiB and a key of three letters: nine fit, for keys count."""
    put(kinesis, *[bytes(1 << 20)] * 12)
    assert len(read(kinesis, HORIZON)) == 9


def test_empty_pages_come_before_records(clock: HandClock) -> None:
    """Kinesis trap 24: nothing, though the reader is behind."""
    kinesis = FakeKinesis(clock, quirks=Quirks(empty_pages=2))
    kinesis.create_stream("orders")
    put(kinesis, b"a")
    iterator = kinesis.shard_iterator("orders", SHARD, HORIZON)
    answers = [kinesis.get_records(iterator) for _ in range(3)]
    assert [len(answer.records) for answer in answers] == [0, 0, 1]
    assert [answer.behind > 0 for answer in answers] == [True, True, False]


def test_trimmed_sequence_number_leads_to_the_horizon(
    kinesis: FakeKinesis, clock: HandClock
) -> None:
    """No error says that records are gone."""
    first = put(kinesis, b"a", b"b")[0]
    clock.now = 10
    put(kinesis, b"c")
    kinesis.trim("orders", EPOCH + 10)
    assert read(kinesis, IteratorStart("AFTER_SEQUENCE_NUMBER", first)) == [b"c"]


def test_iterator_into_what_was_trimmed_goes_on_at_the_horizon(
    kinesis: FakeKinesis, clock: HandClock
) -> None:
    """Retention overtakes a slow reader in silence."""
    put(kinesis, b"a")
    iterator = kinesis.shard_iterator("orders", SHARD, HORIZON)
    clock.now = 10
    put(kinesis, b"b")
    kinesis.trim("orders", EPOCH + 10)
    answer = kinesis.get_records(iterator)
    assert [record.data for record in answer.records] == [b"b"]
    put(kinesis, b"c")
    assert answer.next is not None
    assert [record.data for record in kinesis.get_records(answer.next).records] == [b"c"]


def test_records_expire_by_themselves(clock: HandClock) -> None:
    """What is older than the retention is gone, whoever looks."""
    kinesis = FakeKinesis(clock, retention=60)
    kinesis.create_stream("orders")
    put(kinesis, b"a")
    clock.now = 61
    assert read(kinesis, HORIZON) == []


def test_deleted_stream_is_not_found(kinesis: FakeKinesis) -> None:
    """Kinesis trap 25: an iterator of a stream that was deleted."""
    iterator = kinesis.shard_iterator("orders", SHARD, HORIZON)
    kinesis.delete_stream("orders")
    with pytest.raises(RefusedError, match="ResourceNotFoundException"):
        kinesis.get_records(iterator)


def test_stream_that_is_made_again_is_another(kinesis: FakeKinesis) -> None:
    """Within the same second: another creation time, and no position of the old one is valid."""
    number = put(kinesis, b"a")[0]
    iterator = kinesis.shard_iterator("orders", SHARD, HORIZON)
    created = kinesis.stream("orders").created
    kinesis.delete_stream("orders")
    kinesis.create_stream("orders", 2)
    put(kinesis, b"b")
    assert kinesis.stream("orders").created > created
    start = IteratorStart("AT_SEQUENCE_NUMBER", number)
    assert refusal(kinesis, start) == "InvalidArgumentException"
    with pytest.raises(RefusedError, match="ResourceNotFoundException"):
        kinesis.get_records(iterator)


def test_put_that_is_throttled_stores_nothing(kinesis: FakeKinesis) -> None:
    """A planned refusal is of that many records."""
    kinesis.refuse_puts(1)
    with pytest.raises(RefusedError, match="ProvisionedThroughputExceeded"):
        put(kinesis, b"a")
    put(kinesis, b"b")
    assert read(kinesis, HORIZON) == [b"b"]


def test_answers_that_lack_the_way_on_come_as_often_as_was_said(clock: HandClock) -> None:
    """Like the end of a closed shard, but for the children; of an open one."""
    kinesis = FakeKinesis(clock, quirks=Quirks(false_ends=3), limits=ShardLimits.none())
    kinesis.create_stream("orders")
    iterator = kinesis.shard_iterator("orders", SHARD, HORIZON)
    ends = [kinesis.get_records(iterator).next is None for _ in range(6)]
    assert ends == [False, False, True] * 2
