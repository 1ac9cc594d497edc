"""What is known of the broker's limit, and what is assumed where it does not say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    IncompatibleBrokerVersion,
    NodeNotReadyError,
    RequestTimedOutError,
)

from consumer_sdk.adapters.kafka.client.lookups import Coordinator
from consumer_sdk.adapters.kafka.commits.limits import MetadataLimit
from consumer_sdk.adapters.kafka.commits.metadata import HEAD_SIZE, MOST

NAME = "offset.metadata.max.bytes"


def limit_of(
    answer: Any, coordinator: int | Exception = 7
) -> tuple[MetadataLimit, list[tuple[object, object]]]:
    """A limit whose broker gives one answer, and what it was asked."""
    asked: list[tuple[object, object]] = []

    async def send(node: object, request: Any) -> Any:
        asked.append((node, request._resources))
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(resources=[(0, None, 4, "7", answer)])

    async def find(of: Coordinator) -> int:
        assert of == Coordinator("g")
        if isinstance(coordinator, Exception):
            raise coordinator
        return coordinator

    cluster: Any = SimpleNamespace(send=send, coordinator=find)
    return MetadataLimit(cluster, "g"), asked


async def test_coordinator_is_asked_once() -> None:
    """A broker answers for itself alone."""
    limit, asked = limit_of([(NAME, "48", True, 5, False, [])])
    await limit.learn()
    await limit.learn()
    assert asked == [(7, [(4, "7", [NAME])])]


async def test_coordinator_that_is_not_known_is_asked_later() -> None:
    """Opening does not fail by it."""
    limit, asked = limit_of([], GroupCoordinatorNotAvailableError())
    await limit.learn()
    assert (limit.size, asked) == (MOST, [])


@pytest.mark.parametrize("told, warnings", [(48, 1), (MOST, 0), (MOST + 1, 0)])
async def test_smaller_limit_is_said_once(
    told: int, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Before anything gets lost by it."""
    limit, _ = limit_of([(NAME, str(told), True, 5, False, [])])
    await limit.learn()
    await limit.has_room_for_head()
    assert len(caplog.messages) == warnings


@pytest.mark.parametrize("told", [0, HEAD_SIZE - 1, HEAD_SIZE, MOST, 30_000])
async def test_broker_is_asked_once_and_more_than_the_default_is_not_used(told: int) -> None:
    """32 767 bytes are what a request's text can have."""
    limit, asked = limit_of([(NAME, str(told), True, 5, False, [])])
    assert await limit.has_room_for_head() == (told >= HEAD_SIZE)
    assert await limit.has_room_for_head() == (told >= HEAD_SIZE)
    assert limit.size == min(told, MOST)
    assert len(asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        *(
            [],
            [(NAME, None, True, 5, False, [])],
            [(NAME, "much", True, 5, False, [])],
            [("other", "0", True, 5, False, [])],
        ),
        *(NodeNotReadyError(), RequestTimedOutError(), IncompatibleBrokerVersion(), OSError()),
    ],
    ids=repr,
)
async def test_broker_that_does_not_say_is_taken_for_one_with_room(answer: Any) -> None:
    """A principal without the right to know, and brokers that are not Kafka."""
    limit, _ = limit_of(answer)
    assert await limit.has_room_for_head()
    assert limit.size == MOST


async def test_limit_that_nobody_tells_is_halved_below_what_was_refused() -> None:
    """It ends at nothing, after twelve refusals at most."""
    limit, _ = limit_of([])
    sizes = []
    while limit.size:
        await limit.shrink(min(limit.size, 4_000))
        sizes.append(limit.size)
    assert sizes[:3] == [2_000, 1_000, 500]
    assert len(sizes) == 12


async def test_refusal_asks_for_the_limit_before_anything_is_guessed() -> None:
    """Half of what was refused may be more than is taken, or much less."""
    limit, asked = limit_of([(NAME, "2900", True, 5, False, [])])
    await limit.shrink(3_000)
    assert (limit.size, len(asked)) == (2_900, 1)


async def test_refusal_that_is_known_by_now_shrinks_nothing() -> None:
    """The limit was asked for while the refused commit was in the air."""
    limit, asked = limit_of([(NAME, "100", True, 5, False, [])])
    await limit.has_room_for_head()
    await limit.shrink(3_000)
    assert (limit.size, len(asked)) == (100, 1)
