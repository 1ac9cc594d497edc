"""The page on observing names what there is, and its programs run."""

from __future__ import annotations

import asyncio
import re
import runpy
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from consumer_sdk import Consumer, Message, RetryPolicy, telemetry
from consumer_sdk.telemetry.model import METRICS, SEMANTIC_CONVENTIONS
from consumer_sdk.testing import MemoryAdapter
from tests.runtime.bench import Bench, bench

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "observe.md").read_text(encoding="utf-8")
PROGRAMS = runpy.run_path(str(DOCS / "snippets" / "observe" / "observing.py"))
"""What the page shows: each function of it."""


def test_programs_of_the_page_do_what_it_says() -> None:
    """Each is called once."""
    page = PROGRAMS

    async def test(b: Bench) -> None:
        consumer = b.consumer()
        registry = page["expose"](consumer)
        running = asyncio.create_task(page["trace_all"](consumer, page["limited"](1)(_slow)))
        assert page["ready"](consumer) == 503
        await asyncio.sleep(1)
        assert (page["live"](consumer), page["ready"](consumer)) == (200, 200)

        async def move() -> None:
            b.append("k=1")
            await asyncio.sleep(5)
            assert consumer.snapshot().partitions[0].paused == "operator"

        await page["move_the_database"](consumer, move)
        await asyncio.sleep(2.5)
        (stuck,) = page["stuck"](consumer, 0.5)
        assert stuck.startswith("s/0: 0 is r")  # running, or retrying
        assert 'consumer_sdk_failed_total{group="g"' in generate_latest(registry).decode()
        consumer.stop()
        await running

    bench(test)
    message = Message()
    message.value = b'{"trace": {"traceparent": "x"}}'
    assert page["carried"](message) == {"traceparent": "x"}
    assert page["add_message"](None, "info", {"event": "e"}) == {"event": "e"}
    assert callable(page["log_json"])
    outcomes = page["Outcomes"]()
    message.key = b"k"
    message.position = 0
    outcomes.settled(message)
    outcomes.dead_lettered(message, "why")
    assert (len(outcomes.finished), len(outcomes.alarms)) == (1, 1)
    assert callable(page["seen"])  # tests/admin/test_server.py runs the like on a free port


def test_log_lines_of_the_page_are_what_a_failing_record_causes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line for the failure, one for the dead letter, and how many more there were."""

    async def handle(_message: Message) -> None:
        raise ValueError("no such customer")

    async def test(b: Bench) -> None:
        b.broker.create_stream("orders")
        b.broker.skip("orders", 0, 1041)
        b.broker.append("orders", b"order")
        consumer = Consumer(
            MemoryAdapter(b.broker, "orders", group="g"),
            retry=RetryPolicy(max_attempts=5, initial=0.1),
            dead_letters=b.letters,
            clock=b.simulation.clock,
        )
        running = asyncio.create_task(consumer.run(handle))
        await asyncio.sleep(20)
        consumer.stop()
        await running

    bench(test)
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    shown = (DOCS / "snippets" / "observe" / "log_lines.txt").read_text(encoding="utf-8")
    assert told == shown.splitlines()


async def _slow(_message: Message) -> None:
    await asyncio.sleep(1000)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_is_on_the_page_with_its_labels(metric: telemetry.Metric) -> None:
    """A metric that is added needs a row."""
    (row,) = [line for line in PAGE.splitlines() if f"`{metric.name}`" in line]
    assert metric.kind in row
    assert set(metric.labels) <= set(re.findall(r"\w+", row))


def test_conventions_version_is_the_pinned_one() -> None:
    """It stands in one place of the code, and here."""
    assert f"version {SEMANTIC_CONVENTIONS} " in PAGE
