"""Claims about what a shard refuses. Kinesis trap 22 needs a server that does."""

import pytest

from consumer_sdk.adapters.kinesis.service.service import IteratorStart
from consumer_sdk.testing.kinesis import FakeKinesis, RefusedError, ShardLimits
from tests.testing.kinesis.clock import HandClock

SHARD = "shardId-000000000000"
MEBIBYTE = 1 << 20


def iterator(kinesis: FakeKinesis, shard: str = SHARD) -> str:
    """An iterator at the horizon."""
    return kinesis.shard_iterator("orders", shard, IteratorStart("TRIM_HORIZON"))


def is_refused(kinesis: FakeKinesis, token: str) -> bool:
    """Whether the shard has had enough of calls or bytes; never for another reason."""
    try:
        kinesis.get_records(token, 1)
    except RefusedError as error:
        if error.code != "ProvisionedThroughputExceededException":
            raise
        return True
    return False


def test_sixth_call_within_a_second_is_refused(kinesis: FakeKinesis, clock: HandClock) -> None:
    """Kinesis trap 22: five, whoever reads; a refused call does not count."""
    tokens = [iterator(kinesis), iterator(kinesis)]
    assert [is_refused(kinesis, tokens[i % 2]) for i in range(7)] == [False] * 5 + [True] * 2
    clock.now = 0.99
    assert is_refused(kinesis, tokens[0])
    clock.now = 1.0
    assert not is_refused(kinesis, tokens[0])


def test_shards_have_their_own_limits(kinesis: FakeKinesis) -> None:
    """One that is exhausted does not touch the other."""
    token, other = iterator(kinesis), iterator(kinesis, "shardId-000000000001")
    while not is_refused(kinesis, token):
        pass
    assert not is_refused(kinesis, other)


def test_two_mebibytes_exhaust_a_second(kinesis: FakeKinesis, clock: HandClock) -> None:
    """Kinesis trap 22: after two records of a MiB the third waits for the next second."""
    kinesis.put("orders", bytes(MEBIBYTE - 3), shard=SHARD)  # the key has three
    token = iterator(kinesis)
    assert [is_refused(kinesis, token) for _ in range(3)] == [False, False, True]
    clock.now = 1.0
    assert not is_refused(kinesis, token)


def test_large_answer_is_followed_by_five_seconds_of_nothing(
    kinesis: FakeKinesis, clock: HandClock
) -> None:
    """Kinesis trap 22: the 10 MiB rule, to within the keys' bytes."""
    for _ in range(11):
        kinesis.put("orders", bytes(MEBIBYTE - 3), shard=SHARD)
    token = iterator(kinesis)
    assert kinesis.get_records(token).size == 10 * MEBIBYTE
    clock.now = 4.99
    assert is_refused(kinesis, token)
    clock.now = 5.0
    assert not is_refused(kinesis, token)


def test_sixth_iterator_within_a_second_is_refused(kinesis: FakeKinesis, clock: HandClock) -> None:
    """GetShardIterator has a limit of its own."""
    for _ in range(5):
        token = iterator(kinesis)
    with pytest.raises(RefusedError, match="ProvisionedThroughputExceeded"):
        iterator(kinesis)
    assert not is_refused(kinesis, token)
    clock.now = 1.0
    iterator(kinesis)


def test_limits_can_be_lifted(clock: HandClock) -> None:
    """For tests that are about something else."""
    kinesis = FakeKinesis(clock, limits=ShardLimits.none())
    kinesis.create_stream("orders")
    kinesis.put("orders", bytes(MEBIBYTE), shard=SHARD)
    token = iterator(kinesis)
    assert not any(is_refused(kinesis, token) for _ in range(100))
