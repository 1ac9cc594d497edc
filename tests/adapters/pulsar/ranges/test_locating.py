"""What a reader says that is not so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from consumer_sdk.adapters.pulsar.ranges.locating import ATTEMPTS, READ, Locator
from consumer_sdk.adapters.pulsar.ranges.native_readers import NativeReader
from consumer_sdk.adapters.pulsar.ranges.options import NOBODY, RangeOptions
from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.records import AtTime, Partition

TOPIC = Partition("persistent://public/default/orders", "-1")


class Reader:
    """Says that there is a message, as the client may after a seek, and never hands one out."""

    def __init__(self, *, has_more: bool) -> None:
        self._has_more = has_more
        self.reads = 0
        self.is_closed = False

    async def open(self, start: Any, configuration: Any) -> None:
        """It is there."""

    async def seek(self, time: float) -> None:
        """It is answered."""

    async def has_more(self) -> bool:
        """As was said."""
        return self._has_more

    async def run(self, work: Any, *arguments: Any) -> Any:
        """Nothing in time."""
        self.reads += 1

    async def aclose(self) -> None:
        """It is gone."""
        self.is_closed = True


def locator(readers: list[Reader]) -> Locator:
    """Takes the readers in turn."""
    left = iter(readers)
    pulsar = SimpleNamespace(subscription=NOBODY)
    options = SimpleNamespace(pulsar=pulsar, for_reader=lambda queue: queue)
    return Locator(cast("RangeOptions", options), None, lambda _: cast("NativeReader", next(left)))


async def test_a_message_that_does_not_come_is_asked_for_again() -> None:
    """The client forgot the seek of the first reader, and remembers that of the second."""
    readers = [Reader(has_more=True), Reader(has_more=False)]
    assert await locator(readers).find(TOPIC, AtTime(1.0)) is None
    assert [each.reads for each in readers] == [READ, 0]
    assert all(each.is_closed for each in readers)


async def test_a_message_that_never_comes_is_an_error() -> None:
    """It is not taken for none: behind it a start would lose records."""
    readers = [Reader(has_more=True) for _ in range(ATTEMPTS)]
    with pytest.raises(TransientAdapterError, match="its last message does not come"):
        await locator(readers).find(TOPIC, AtTime(1.0))
    assert all(each.is_closed for each in readers)
