"""The native reader, awaited: what a broker shows now and then."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import _pulsar
import pytest

from consumer_sdk.adapters.pulsar.ranges.native import NativeReader
from consumer_sdk.errors import AdapterError

Result = _pulsar.Result


class Native:
    """A native reader that answers with these results."""

    def __init__(self, *results: Any) -> None:
        self._results = list(results)

    def has_message_available_async(self, done: Callable[..., None]) -> None:
        """There is a message, unless the answer is an error."""
        done(self._results.pop(0), True)


async def has_more(*results: Any) -> bool:
    """What a reader says whose broker answers so."""
    with ThreadPoolExecutor(1) as threads:
        reader = NativeReader(None, "t", threads, patience=60.0)
        reader._native = Native(*results)
        return await reader.has_more()


async def test_reader_that_the_broker_has_just_closed_asks_again() -> None:
    """As after each seek: it is open again a moment later."""
    assert await has_more(Result.BrokerMetadataError, Result.NotConnected, Result.Ok)


async def test_what_time_does_not_mend_is_told_at_once() -> None:
    """Credentials, for instance."""
    with pytest.raises(AdapterError, match="AuthorizationError"):
        await has_more(Result.AuthorizationError)
