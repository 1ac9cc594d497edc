"""Claims about enhanced fan-out: consumers, subscriptions, and how they end."""

import pytest

from consumer_sdk.adapters.kinesis.service.service import IteratorStart
from consumer_sdk.testing.kinesis import FakeKinesis, Quirks, RefusedError
from consumer_sdk.testing.kinesis.fanout import Event, Subscription
from tests.testing.kinesis.clock import HandClock

SHARD = "shardId-000000000000"
HORIZON = IteratorStart("TRIM_HORIZON")
LATEST = IteratorStart("LATEST")


def register(kinesis: FakeKinesis, clock: HandClock, name: str = "app") -> str:
    """The ARN of a consumer that is active."""
    consumer = kinesis.fan_out.register("orders", name)
    clock.now += kinesis.fan_out.creating(consumer)
    return consumer.arn


def subscribe(kinesis: FakeKinesis, arn: str, start: IteratorStart = HORIZON) -> Subscription:
    """A subscription to the first shard."""
    return kinesis.fan_out.subscribe(arn, SHARD, start)


def sent(subscription: Subscription) -> Event:
    """What is to be sent now; something is."""
    event = subscription.poll()
    assert event is not None
    return event


def test_consumer_is_creating_for_a_moment(kinesis: FakeKinesis, clock: HandClock) -> None:
    """Until then it cannot subscribe."""
    consumer = kinesis.fan_out.register("orders", "app")
    with pytest.raises(RefusedError, match="ResourceInUseException"):
        subscribe(kinesis, consumer.arn)
    clock.now += kinesis.fan_out.creating(consumer)
    assert subscribe(kinesis, consumer.arn).began == clock.now


def test_consumer_name_is_taken_once(kinesis: FakeKinesis, clock: HandClock) -> None:
    """By stream; it is found by name, and free again when deregistered."""
    arn = register(kinesis, clock)
    with pytest.raises(RefusedError, match="ResourceInUseException"):
        kinesis.fan_out.register("orders", "app")
    assert kinesis.fan_out.named("orders", "app").arn == arn
    kinesis.fan_out.deregister(arn)
    clock.now += 1
    assert kinesis.fan_out.register("orders", "app").arn != arn


def test_stream_has_twenty_consumers(kinesis: FakeKinesis) -> None:
    """AWS's limit."""
    for number in range(20):
        kinesis.fan_out.register("orders", f"app-{number}")
    with pytest.raises(RefusedError, match="LimitExceededException"):
        kinesis.fan_out.register("orders", "one more")


def test_records_come_with_where_to_go_on(kinesis: FakeKinesis, clock: HandClock) -> None:
    """Kinesis trap 27: AFTER the continuation is what follows, AT it is the last record again."""
    arn = register(kinesis, clock)
    kinesis.put("orders", b"a", shard=SHARD)
    event = sent(subscribe(kinesis, arn))
    kinesis.put("orders", b"b", shard=SHARD)
    for kind, data in (("AFTER_SEQUENCE_NUMBER", [b"b"]), ("AT_SEQUENCE_NUMBER", [b"a", b"b"])):
        clock.now += 5
        again = subscribe(kinesis, arn, IteratorStart(kind, event.continuation))
        assert [record.data for record in sent(again).records] == data


def test_idle_subscription_keeps_its_continuation(kinesis: FakeKinesis, clock: HandClock) -> None:
    """Kinesis trap 27: an event every five seconds, which says where the reader stands."""
    arn = register(kinesis, clock)
    kinesis.put("orders", b"a", shard=SHARD)
    subscription = subscribe(kinesis, arn)
    last = sent(subscription).continuation
    for _ in range(3):
        assert subscription.poll() is None
        clock.now += 5
        event = sent(subscription)
        assert (event.records, event.continuation, event.behind) == ([], last, 0)


def test_idle_subscription_to_an_empty_shard_can_be_continued(
    kinesis: FakeKinesis, clock: HandClock
) -> None:
    """Kinesis trap 27: the shard's start, after which its first record comes."""
    arn = register(kinesis, clock)
    subscription = subscribe(kinesis, arn, LATEST)
    clock.now += 5
    start = IteratorStart("AFTER_SEQUENCE_NUMBER", sent(subscription).continuation)
    kinesis.put("orders", b"a", shard=SHARD)
    assert [record.data for record in sent(subscribe(kinesis, arn, start)).records] == [b"a"]


def test_subscription_ends_after_five_minutes(kinesis: FakeKinesis, clock: HandClock) -> None:
    """Without an error, and without an event that would say so."""
    arn = register(kinesis, clock)
    subscription = subscribe(kinesis, arn)
    clock.now += 299
    sent(subscription)
    clock.now += 1
    assert subscription.poll() is None
    assert subscription.is_over
    assert subscription.failure is None


def test_end_of_the_shard_has_children_and_no_continuation(
    kinesis: FakeKinesis, clock: HandClock
) -> None:
    """Kinesis trap 27: that is how a subscriber knows it."""
    arn = register(kinesis, clock)
    kinesis.put("orders", b"a", shard=SHARD)
    subscription = subscribe(kinesis, arn)
    sent(subscription)
    clock.now += 1
    children = kinesis.split("orders", SHARD)
    event = sent(subscription)
    assert (event.records, event.continuation, event.children) == ([], None, [*children])
    assert subscription.is_over


def test_second_subscription_within_five_seconds_is_refused(
    kinesis: FakeKinesis, clock: HandClock
) -> None:
    """Kinesis trap 27: even if the first has ended; other consumers are free to."""
    arn, other = register(kinesis, clock), register(kinesis, clock, "other")
    subscribe(kinesis, arn).end()
    clock.now += 4.9
    with pytest.raises(RefusedError, match="ResourceInUseException"):
        subscribe(kinesis, arn)
    subscribe(kinesis, other)


@pytest.mark.parametrize("code", [None, "ResourceInUseException"])
def test_later_subscription_takes_over(clock: HandClock, code: str | None) -> None:
    """Kinesis trap 27: the old one just ends, or fails; AWS says that it may do either."""
    kinesis = FakeKinesis(clock, quirks=Quirks(takeover_error=code is not None))
    kinesis.create_stream("orders")
    arn = register(kinesis, clock)
    older = subscribe(kinesis, arn)
    clock.now += 5
    newer = subscribe(kinesis, arn)
    kinesis.put("orders", b"a", shard=SHARD)
    assert older.poll() is None
    assert older.is_over
    assert (older.failure and older.failure.code) == code
    assert len(sent(newer).records) == 1


def test_subscription_sends_two_mebibytes_a_second(kinesis: FakeKinesis, clock: HandClock) -> None:
    """To each consumer, whoever else reads."""
    arn = register(kinesis, clock)
    for _ in range(3):
        kinesis.put("orders", bytes(1 << 20), shard=SHARD)
    subscription = subscribe(kinesis, arn)
    assert len(sent(subscription).records) == 1
    assert subscription.poll() is None
    clock.now += subscription.wait()
    assert clock.now == pytest.approx(1.0, abs=0.001)  # half of it went by until it was ACTIVE
    assert len(sent(subscription).records) == 1


def test_subscription_of_a_deleted_stream_fails(kinesis: FakeKinesis, clock: HandClock) -> None:
    """Kinesis trap 27: an error within the stream of events."""
    subscription = subscribe(kinesis, register(kinesis, clock))
    kinesis.delete_stream("orders")
    assert subscription.failure is not None
    assert subscription.failure.code == "ResourceNotFoundException"


def test_subscription_goes_on_at_the_horizon(kinesis: FakeKinesis, clock: HandClock) -> None:
    """What was trimmed before it could be sent is passed over; the last of it is kept as a place."""
    arn = register(kinesis, clock)
    _, lost = kinesis.put("orders", b"a", shard=SHARD)
    subscription = subscribe(kinesis, arn)
    clock.now += 5
    kinesis.trim("orders", clock.wall())
    assert sent(subscription).continuation == lost.sequence
    kinesis.put("orders", b"b", shard=SHARD)
    kinesis.put("orders", b"c", shard=SHARD)
    assert [record.data for record in sent(subscription).records] == [b"b", b"c"]
    clock.now += 1
    assert subscription.poll() is None


def test_end_of_a_shard_may_be_told_late(clock: HandClock) -> None:
    """Kinesis trap 20: its children are listed already; no heartbeat is needed to learn of it."""
    kinesis = FakeKinesis(clock, quirks=Quirks(close_lag=2))
    kinesis.create_stream("orders")
    subscription = subscribe(kinesis, register(kinesis, clock))
    kinesis.split("orders", SHARD)
    assert subscription.poll() is None
    assert subscription.wait() == pytest.approx(2)
    clock.now += 2
    assert sent(subscription).continuation is None
