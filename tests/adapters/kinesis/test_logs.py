"""What a group's members log of their shards, at INFO."""

from __future__ import annotations

import asyncio
import logging

import pytest

from consumer_sdk import Consumer, Message
from tests.adapters.kinesis.harness import shard_id
from tests.adapters.kinesis.stage import Stage, play


async def settle(_message: Message) -> None:
    """A handler without trouble."""


def running(consumer: Consumer) -> asyncio.Task[None]:
    """A whole consumer in a task."""
    return asyncio.create_task(consumer.run(settle))


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said at INFO."""
    return [each.getMessage() for each in caplog.records if each.levelno == logging.INFO]


def test_shards_that_are_taken_handed_over_and_ended_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each is told once, as what it is: an end is no loss."""

    async def test(stage: Stage) -> None:
        first = stage.consumer()
        tasks = [running(first)]
        await asyncio.sleep(100)
        tasks.append(running(stage.consumer()))
        await asyncio.sleep(100)
        for shard in range(2):
            stage.kinesis.split("s", shard_id(shard))
        await asyncio.sleep(200)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    with caplog.at_level(logging.INFO):
        play(test, shards=2)
    told = texts(caplog)
    assert sum(text.startswith("handing 1 shard (shardId-00000000000") for text in told) == 1
    ended = [text for text in told if text.startswith("ended 1 partition (s/shardId-00000000000")]
    assert len(ended) == 2
    assert all("all of its records are settled" in text for text in ended)
    assert not any(text.startswith("lost") for text in told)


def test_shards_of_a_member_that_died_are_taken_aloud(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever reads the log of the new owner learns from whom."""

    async def test(stage: Stage) -> None:
        dead = await stage.member()
        await dead.holding(shard_id(0), shard_id(1))
        dead.store_faults.die()
        task = running(stage.consumer())
        await asyncio.sleep(300)
        task.cancel()
        await asyncio.wait([task])

    with caplog.at_level(logging.INFO, "consumer_sdk.adapters.kinesis.consumer.membership"):
        play(test, shards=2)
    (told,) = texts(caplog)
    assert told.startswith("taking 2 shards (shardId-0000")
    assert told.endswith("without a handover from member 1")
