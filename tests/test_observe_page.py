"""The page on observing names what there is, and its programs run."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from consumer_sdk import Consumer, Message, admin, telemetry
from consumer_sdk.runtime.dispatch.handlers import Handler
from consumer_sdk.telemetry.model import METRICS, SEMANTIC_CONVENTIONS
from tests.runtime.bench import Bench, bench

PAGE = (Path(__file__).parent.parent / "docs" / "observe.md").read_text(encoding="utf-8")
NAMES = {
    "Any": Any,
    "Awaitable": Awaitable,
    "Callable": Callable,
    "CollectorRegistry": CollectorRegistry,
    "Consumer": Consumer,
    "Handler": Handler,
    "Message": Message,
    "admin": admin,
    "asyncio": asyncio,
    "json": json,
    "logging": logging,
    "telemetry": telemetry,
}


def _programs() -> dict[str, Any]:
    """All that the page's programs define."""
    names: dict[str, Any] = dict(NAMES)
    for code in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(code, "docs/observe.md", "exec"), names)  # noqa: S102 - our own page
    return names


def test_programs_of_the_page_do_what_it_says() -> None:
    """Each is called once."""
    page = _programs()

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
    assert callable(page["seen"])  # tests/admin/test_server.py runs the like on a free port


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
