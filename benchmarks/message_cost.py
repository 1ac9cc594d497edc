"""``python -m benchmarks message``: what one message costs before anybody looks at it.

A batch of 500 is made and dropped again and again, as a consumer does, the collector running.
The same loop over a list of nothing is subtracted. The best of several passes is given, since all
else is the noise of the machine, in microseconds of CPU time a message.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Say
from consumer_sdk.records import Assignment, Message, Partition

__all__ = ["measure"]

LIMIT_US = 0.2
_BATCH = 500
_KEY = b"key-00001"
_VALUE = b"v" * 100
_ASSIGNMENT = Assignment(Partition("topic", "0"), 1)


async def measure(*, quick: bool, say: Say) -> dict[str, Any]:
    """Microseconds for a message made attribute by attribute, and through `Message.make`."""
    passes = 5 if quick else 21
    loop = _microseconds(_nothing, passes)
    result: dict[str, Any] = {
        "message_us": round(_microseconds(_stores, passes) - loop, 3),
        "make_us": round(_microseconds(_make, passes) - loop, 3),
        "object_bytes": sys.getsizeof(Message()),
    }
    say(f"message: {result['message_us']} µs; the aim is {LIMIT_US} µs or less")
    return result


def _microseconds(make_batch: Callable[[int], object], passes: int) -> float:
    batches = 200
    times = []
    for _ in range(passes):
        began = time.process_time()
        for number in range(batches):
            make_batch(number)
        times.append((time.process_time() - began) / (batches * _BATCH) * 1e6)
    return min(times)


def _nothing(first: int) -> list[None]:
    nothing: list[None] = []
    for _ in range(first, first + _BATCH):
        nothing.append(None)  # noqa: PERF401 - the loop of `_stores`
    return nothing


def _stores(first: int) -> list[Message]:
    """As the adapters do it."""
    messages = []
    for position in range(first, first + _BATCH):
        message = Message()
        message.assignment = _ASSIGNMENT
        message.position = position
        message.key = _KEY
        message.value = _VALUE
        message.headers = ()
        message.timestamp = 0
        messages.append(message)
    return messages


def _make(first: int) -> list[Message]:
    return [
        Message.make(_ASSIGNMENT, position, _VALUE, key=_KEY, timestamp=0)
        for position in range(first, first + _BATCH)
    ]
