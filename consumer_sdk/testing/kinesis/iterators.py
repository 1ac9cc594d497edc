"""Shard iterators: what GetShardIterator gives is a place in a shard, and when it was made."""

from __future__ import annotations

import base64
import json
from dataclasses import astuple, dataclass

from consumer_sdk.testing.kinesis.errors import expired, invalid

__all__ = ["LIFETIME", "Cursor"]

LIFETIME = 300.0
"""Seconds that an iterator can be used, as often as one likes."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """What an iterator stands for.

    Attributes:
        stream: the stream's name.
        created: when the stream was; one of the same name that was made later is another.
        shard: the shard's id.
        position: records before the one to be read next.
        made: the clock's monotonic seconds.
    """

    stream: str
    created: float
    shard: str
    position: int
    made: float

    def token(self) -> str:
        """The iterator as the service gives it."""
        return base64.b64encode(json.dumps(astuple(self)).encode()).decode()

    @staticmethod
    def of(token: str) -> Cursor:
        """What a token stands for.

        Raises:
            RefusedError: it is none of the fake's.
        """
        try:
            return Cursor(*json.loads(base64.b64decode(token, validate=True)))
        except (ValueError, TypeError):
            raise invalid("Invalid ShardIterator") from None

    def check(self, now: float) -> None:
        """Looks at its age.

        Raises:
            RefusedError: it is too old.
        """
        if now - self.made > LIFETIME:
            raise expired(f"Iterator expired: it is {now - self.made:.0f} seconds old")
