"""Damage to what a store keeps, from one seed: bytes, shapes and types."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

VALUES: list[Any] = [None, True, -1, 2, 2**63, 1.5, "", "0", "\x00", "é" * 9, [], {}, [[1]], "deep"]
LARGE = 2_000_000
DEPTH = 5000


def fuzzed(data: bytes, chaos: random.Random) -> bytes:
    """A JSON object that was damaged in one way or another; now and then two megabytes of it."""
    kind = chaos.random()
    if kind < 0.0005:
        return data[:-1] + b" " * LARGE + data[-1:]
    if kind < 0.4:
        return reshaped(data, chaos)
    if kind < 0.5:
        return data[: chaos.randrange(len(data))]
    if kind < 0.52:
        return chaos.randbytes(chaos.randint(0, 300))
    return mutated(data, chaos)


def mutated(data: bytes, chaos: random.Random) -> bytes:
    """Some of: flipped bits, a lost part, a doubled part, foreign bytes."""
    changed = bytearray(data)
    for _ in range(chaos.randint(1, 3)):
        at = chaos.randrange(len(changed) + 1)
        end = min(at + chaos.randint(1, 20), len(changed))
        kind = chaos.randrange(4)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << chaos.randrange(8)
        elif kind == 1:
            del changed[at:end]
        elif kind == 2:
            changed[at:at] = changed[at:end]
        else:
            changed[at:end] = chaos.randbytes(chaos.randint(0, 8))
    return bytes(changed)


def reshaped(data: bytes, chaos: random.Random) -> bytes:
    """Another value somewhere: of another type, another version, another topic, or too deep."""
    body = json.loads(data)
    holder, key = chaos.choice(list(_places(body)))
    holder[key] = chaos.choice(VALUES)
    text = json.dumps(body, separators=(",", ":"))
    return text.replace('"deep"', "[" * DEPTH).encode()


def _places(body: Any) -> Iterator[tuple[Any, Any]]:
    """Everything in it that can be replaced."""
    for key, value in list(body.items() if isinstance(body, dict) else enumerate(body)):
        yield body, key
        if isinstance(value, dict | list):
            yield from _places(value)
