"""Questions that are asked again until there is an answer, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeVar, cast

import pytest
from aiokafka import TopicPartition
from aiokafka import errors as kafka

from consumer_sdk.adapters.kafka.client.asking import look_up, persist, time_of
from consumer_sdk.adapters.kafka.client.cluster import Cluster
from consumer_sdk.adapters.kafka.client.lookups import LATEST, ListedOffset
from consumer_sdk.errors import AdapterError, TransientAdapterError
from consumer_sdk.records import AtTime, StartPoint
from consumer_sdk.testing import Simulation, simulate

T = TypeVar("T")
FIRST, SECOND, THIRD = (TopicPartition("t", n) for n in range(3))
PASSING = kafka.NotLeaderForPartitionError("t[0]")


class Scripted:
    """Answers by a script, and counts.

    Args:
        answers: what it says to each question about offsets, one after another: offsets and failures.
    """

    def __init__(
        self, *answers: tuple[dict[TopicPartition, Any], dict[TopicPartition, Exception]]
    ) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Mapping[TopicPartition, int], int]] = []
        self.refreshed: list[float] = []
        self.refusal: Exception | None = None

    async def refresh(self) -> None:
        """Fresh metadata, or none."""
        self.refreshed.append(asyncio.get_running_loop().time())
        if self.refusal is not None:
            raise self.refusal

    async def list_offsets(self, wanted: Mapping[TopicPartition, int], *, level: int) -> Any:
        """What it knows."""
        self.asked.append((dict(wanted), level))
        return self.answers.pop(0)


def timed(main: Callable[[], Awaitable[T]]) -> tuple[T | Exception, float]:
    """The result or error, and how long it took."""

    async def run(_simulation: Simulation) -> tuple[T | Exception, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            result: T | Exception = await main()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            result = error
        return result, loop.time() - began

    return simulate(run)


@pytest.mark.parametrize("refusal", [None, kafka.KafkaConnectionError("nobody")])
def test_question_is_asked_again_with_fresh_metadata(refusal: Exception | None) -> None:
    """After a while that doubles, up to half a second; also where no broker gives any metadata."""
    cluster, left = Scripted(), [PASSING, ConnectionResetError(), TimeoutError()] * 2
    cluster.refusal = refusal

    async def ask() -> str:
        if left:
            raise left.pop()
        return "told"

    found, seconds = timed(lambda: persist(cluster, 9.0, "asking", ask))
    assert found == "told"
    assert len(cluster.refreshed) == 6
    assert seconds == pytest.approx(0.05 + 0.1 + 0.2 + 0.4 + 0.5 + 0.5)


def test_failure_that_stays_is_raised_at_once() -> None:
    """Asking again would not help."""
    cluster = Scripted()

    async def ask() -> None:
        raise kafka.TopicAuthorizationFailedError("t")

    found, seconds = timed(lambda: persist(cluster, 9.0, "asking", ask))
    assert isinstance(found, AdapterError)
    assert not isinstance(found, TransientAdapterError)
    assert str(found).startswith("asking: ")
    assert isinstance(found.__cause__, kafka.TopicAuthorizationFailedError)
    assert (seconds, cluster.refreshed) == (0.0, [])


@pytest.mark.parametrize("is_silent", [True, False])
def test_time_for_all_tries_is_bounded(*, is_silent: bool) -> None:
    """The error says the last failure, or that there was no answer at all."""

    async def ask() -> None:
        if is_silent:
            await asyncio.sleep(1e6)
        raise PASSING

    found, seconds = timed(lambda: persist(Scripted(), 9.0, "asking", ask))
    assert isinstance(found, TransientAdapterError)
    assert seconds == pytest.approx(9.0)
    said = "asking: the broker is silent" if is_silent else "asking: .*NotLeaderForPartition.*t.0."
    with pytest.raises(TransientAdapterError, match=f"{said}; given up after 9 s"):
        raise found
    cause = found.__cause__
    assert isinstance(cause, TimeoutError if is_silent else TransientAdapterError)


def looked_up(cluster: Scripted, tps: Collection[TopicPartition], **options: Any) -> Any:
    """The offsets of the newest records."""
    asked = look_up(cast("Cluster", cluster), tps, LATEST, level=1, seconds=9.0, **options)
    return timed(lambda: asked)[0]


def test_partitions_that_have_answered_are_not_asked_for_again() -> None:
    """One leader may fail; the offsets of the others are known by then."""
    cluster = Scripted(
        ({FIRST: ListedOffset(0, 1), SECOND: None}, {THIRD: PASSING}),
        ({THIRD: ListedOffset(7, 1)}, {}),
    )
    assert looked_up(cluster, [FIRST, SECOND, THIRD]) == {FIRST: 0, SECOND: None, THIRD: 7}
    assert cluster.asked == [
        (dict.fromkeys([FIRST, SECOND, THIRD], LATEST), 1),
        ({THIRD: LATEST}, 1),
    ]


def test_partition_that_is_gone_is_not_asked_for() -> None:
    """It has no offset; whether it is gone is looked at before each try."""
    asked: list[set[TopicPartition]] = []

    async def gone(tps: Collection[TopicPartition]) -> Collection[TopicPartition]:
        asked.append(set(tps))
        return [SECOND] if len(asked) > 1 else []

    cluster = Scripted(
        ({FIRST: ListedOffset(3, 1)}, {SECOND: PASSING}),
        ({}, {}),
    )
    assert looked_up(cluster, [FIRST, SECOND], gone=gone) == {FIRST: 3, SECOND: None}
    assert asked == [{FIRST, SECOND}, {SECOND}]
    assert [set(wanted) for wanted, _ in cluster.asked] == [{FIRST, SECOND}, set()]


def test_nothing_is_asked_about_nothing() -> None:
    """No request, no wait."""
    cluster = Scripted()
    assert looked_up(cluster, []) == {}
    assert cluster.asked == []


def test_partitions_are_named_in_the_error() -> None:
    """With what was being done."""
    cluster = Scripted(({}, {FIRST: kafka.TopicAuthorizationFailedError("t")}))
    assert str(looked_up(cluster, [FIRST])).startswith("looking up positions of t[0]: ")


@pytest.mark.parametrize(
    "start, time",
    [
        (StartPoint.EARLIEST, -2),
        (StartPoint.LATEST, -1),
        (AtTime(0.0), 0),
        (AtTime(1.0), 1000),
        (AtTime(1.0001), 1001),
        (AtTime(1.000_000_1), 1000),  # nothing is that exact
        (AtTime(1_700_000_000.123), 1_700_000_000_123),
        (AtTime(-5.0), 0),
    ],
)
def test_start_is_a_time_of_kafkas(start: Any, time: int) -> None:
    """In milliseconds, rounded up: no record from before it is read."""
    assert time_of(start) == time
