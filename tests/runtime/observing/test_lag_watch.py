"""A partition that falls behind while it is read."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from consumer_sdk import Consumer
from consumer_sdk.testing import Faults, MemoryAdapter
from tests.runtime.bench import Bench, bench


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What the watch has said, and how loud."""
    mine = [r for r in caplog.records if r.name.endswith("health_watch") and r.levelname != "DEBUG"]
    said = [(record.levelname, record.getMessage()) for record in mine]
    return [(level, text) for level, text in said if not text.startswith("no record was settled")]


async def take(consumer: Consumer, count: int) -> None:
    """Settles so many."""
    for _ in range(count):
        (await anext(consumer)).ack()


def test_lag_that_grows_beyond_the_limit_is_said_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Back is at half of the limit, so that one at its limit is not told of again and again."""

    async def test(b: Bench) -> None:
        options: dict[str, Any] = {"max_in_flight": 1, "fetch_records": 1}
        async with b.consumer(max_lag=10, **options) as consumer:
            await asyncio.sleep(1)  # granted at the end
            b.append(*map(str, range(20)))
            await take(consumer, 1)
            await asyncio.sleep(60)
            assert [level for level, _ in lines(caplog)] == ["WARNING"]
            await take(consumer, 10)
            await asyncio.sleep(60)
            assert len(lines(caplog)) == 1
            await take(consumer, 8)
            await asyncio.sleep(60)
        (_, behind), (level, back) = lines(caplog)
        assert behind.startswith("s/0 has fallen ")
        assert behind.endswith(" behind the end (max_lag=10)")
        assert (level, back.split(" behind")[0][:10]) == ("INFO", "s/0 is now")

    with caplog.at_level(logging.DEBUG):
        bench(test)


def test_lag_that_was_said_at_the_start_is_not_said_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The start's line says it."""

    async def test(b: Bench) -> None:
        b.append(*map(str, range(20)))
        async with b.consumer(max_lag=10, max_in_flight=1, fetch_records=1) as consumer:
            await take(consumer, 1)
            await asyncio.sleep(60)
        assert lines(caplog) == []
        assert "it starts at 0, 20 positions behind the end" in caplog.text

    with caplog.at_level(logging.DEBUG):
        bench(test)


def test_lag_that_cannot_be_asked_for_is_no_reason_to_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is looked at again later."""

    async def test(b: Bench) -> None:
        faults = Faults()
        faults.fail_next("lag", times=3)
        adapter = MemoryAdapter(b.broker, "s", group="g", faults=faults)
        options: dict[str, Any] = {"max_in_flight": 1, "fetch_records": 1}
        async with Consumer(adapter, max_lag=10, clock=b.simulation.clock, **options) as consumer:
            await asyncio.sleep(1)
            b.append(*map(str, range(20)))
            await take(consumer, 1)
            await asyncio.sleep(24)
            assert lines(caplog) == []
            await asyncio.sleep(30)
            assert len(lines(caplog)) == 1

    with caplog.at_level(logging.DEBUG):
        bench(test)
