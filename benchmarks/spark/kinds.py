"""Topics of other records than small ones of one size; pure."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cache
from typing import Literal

__all__ = ["KINDS", "Kind"]

_VALUES = 1_000
"""Different ones; they are taken in turns."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The records of one topic.

    Attributes:
        is_json: values are JSON of 80 to 130 bytes, else 10 000 bytes that do not repeat.
        compression: of the producer.
        share: one record for so many of a topic of small ones.
    """

    is_json: bool = True
    compression: Literal["gzip", "zstd"] | None = None
    share: int = 1

    def values(self) -> list[bytes]:
        """Always the same."""
        return _json_values() if self.is_json else _large_values()

    def records(self, rows: int) -> int:
        """How many, where a topic of small ones has ``rows``: each value as often as another."""
        return max(1, rows // self.share // _VALUES) * _VALUES

    def value_bytes(self, rows: int) -> int:
        """Of all values."""
        return sum(map(len, self.values())) * (self.records(rows) // _VALUES)


KINDS = {
    "json": Kind(),
    "gzip": Kind(compression="gzip"),
    "zstd": Kind(compression="zstd"),
    "10kb": Kind(is_json=False, share=50),
}


@cache
def _json_values() -> list[bytes]:
    dice = random.Random(7)
    return [json.dumps(_order(dice, number)).encode() for number in range(_VALUES)]


def _order(dice: random.Random, number: int) -> dict[str, object]:
    return {
        "id": dice.randrange(10**9),
        "customer": f"customer-{dice.randrange(10 ** dice.randrange(1, 7))}",
        "amount": round(dice.random() * 1000, 2),
        "paid": dice.random() < 0.5,  # noqa: PLR2004 - half of them
        "items": [dice.randrange(1000) for _ in range(number % 6)],
    }


@cache
def _large_values() -> list[bytes]:
    dice = random.Random(8)
    return [dice.randbytes(10_000) for _ in range(_VALUES)]
