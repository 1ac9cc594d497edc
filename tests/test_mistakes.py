"""What a user reads who configures something wrongly: all messages stand in ``golden/mistakes.txt``.

A line there that is not indented is a mistake, in Python; the indented one under it is the message.
``python -m tests.test_mistakes`` writes the messages anew; read the difference.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pytest

import consumer_sdk
from consumer_sdk import adapters, dead_letters, stores
from consumer_sdk.adapters.kafka.ranges import KafkaRanges
from consumer_sdk.adapters.kinesis import Limits
from consumer_sdk.adapters.pulsar.ranges import PulsarRanges
from consumer_sdk.adapters.urls import open_ranges
from consumer_sdk.checkpoints.positions import BEGINNING, LAST_BATCH_INDEX, LAST_SUB_SEQUENCE
from consumer_sdk.dead_letters.urls import dead_letters_from_url
from consumer_sdk.testing.memory import MemoryBroker

GOLDEN = Path(__file__).parent / "golden" / "mistakes.txt"


def names() -> dict[str, Any]:
    """What the mistakes may speak of."""
    broker = MemoryBroker()
    broker.create_stream("orders")

    def consumer() -> consumer_sdk.Consumer:
        return consumer_sdk.Consumer(adapters.MemoryAdapter(broker, "orders", group="billing"))

    def run(**options: Any) -> None:
        asyncio.run(consumer().run(_handle, **options))

    async def pull(options: dict[str, Any]) -> None:
        async with consumer() as opened:
            opened.batches(**options)

    async def settle(call: Callable[[consumer_sdk.Message], object]) -> None:
        own = MemoryBroker()
        own.create_stream("orders", 1)
        own.append("orders", b"x")
        async with consumer_sdk.Consumer(adapters.MemoryAdapter(own, "orders")) as opened:
            message = await anext(opened)
            try:
                call(message)
            finally:
                message.ack()

    return {
        **{name: getattr(consumer_sdk, name) for name in consumer_sdk.__all__},
        **{name: getattr(adapters, name) for name in adapters.__all__},
        **{name: getattr(stores, name) for name in stores.__all__},
        **{name: getattr(dead_letters, name) for name in dead_letters.__all__},
        "KafkaRanges": KafkaRanges,
        "PulsarRanges": PulsarRanges,
        "open_ranges": open_ranges,
        "UTC": UTC,
        "datetime": datetime,
        "timedelta": timedelta,
        "inf": math.inf,
        "nan": math.nan,
        "Path": Path,
        "time": time,
        "ssl": ssl,
        "Limits": Limits,
        "adapter": adapters.MemoryAdapter(broker, "orders", group="billing"),
        "broker": broker,
        "dead_letters_from_url": dead_letters_from_url,
        "run": run,
        "_handle": _handle,
        "settle": lambda call: asyncio.run(settle(call)),
        "batches": lambda **options: asyncio.run(pull(options)),
    }


async def _handle(_given: Any) -> None:
    """Never called."""


def said(mistake: str, known: dict[str, Any]) -> str:
    """What a user is told who writes this."""
    try:
        eval(mistake, known)  # noqa: S307 - our own lines
    except consumer_sdk.ConfigurationError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - it is what the test is to show
        return f"{type(error).__name__}: {error}"
    return "nothing"


def retold(lines: list[str]) -> Iterator[str]:
    """The lines of the file, with the messages as they are now."""
    known = names()
    for line in lines:
        if not line.startswith(" "):
            yield line
        if line and not line.startswith(("#", " ")):
            yield f"    {said(line, known)}"


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of what was never opened
def test_mistake_is_told_with_what_is_wrong_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is found when something is built or opened, and is a ConfigurationError."""
    # One message lists the brokers of this process: another test's may not have been collected yet.
    monkeypatch.setattr("consumer_sdk.testing.memory.broker._BROKERS", WeakValueDictionary())
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    assert list(retold(lines)) == lines
    assert issubclass(consumer_sdk.ConfigurationError, ValueError)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of what was never opened
@pytest.mark.parametrize(
    "adapter, positions",
    [
        ('KafkaAdapter("orders", bootstrap_servers="h:9092")', [0, 7, 2**63 - 1]),
        (
            'KinesisAdapter("orders")',
            [BEGINNING, (10**55, 0), (10**55, 3), (10**55, LAST_SUB_SEQUENCE)],
        ),
        (
            (
                'PulsarAdapter("orders", service_url="pulsar://h:6650", subscription="b", '
                'type="failover", admin_url="http://h:8080")'
            ),
            [(12, 0, 4), (12, 3, LAST_BATCH_INDEX)],
        ),
        ('MemoryAdapter(broker, "orders")', [0, 7]),
        ('MemoryAdapter(broker, "orders", group="b", subscription="failover")', [(7, 1)]),
    ],
)
def test_position_of_the_broker_is_a_start(adapter: str, positions: list[object]) -> None:
    """Whatever a message of it may have as its position."""
    for position in positions:
        assert said(f"Consumer({adapter}, start=AtPosition({position!r}))", names()) == "nothing"


def test_no_message_shows_a_secret() -> None:
    """Messages end up in logs."""
    messages = [line for line in GOLDEN.read_text(encoding="utf-8").splitlines() if line[:1] == " "]
    assert len(messages) > 200
    assert not [line for line in messages if "hidden" in line]


if __name__ == "__main__":
    text = GOLDEN.read_text(encoding="utf-8")
    GOLDEN.write_text("\n".join(retold(text.splitlines())) + "\n", encoding="utf-8")
