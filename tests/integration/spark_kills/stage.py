"""What a run of kills is played on: a topic that grows, and a group whose position is watched."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.integration.spark_kills.driver import COLUMNS
from tests.integration.spark_kills.sink import Row

__all__ = ["CHUNK", "Stage", "committed_end"]

CHUNK = 60
"""Records that are sent together."""
PAUSE = 0.25
"""Seconds between chunks."""


class Stage(ABC):
    """A topic of a test's own, and how its records come to Spark.

    Attributes:
        url: what the query reads.
        options: of the query's source.
        sent: the records that the broker has confirmed.
        next: the number that the next record will have as its value.
    """

    url: str
    options: Mapping[str, str] = {"startingOffsets": "earliest", "columns": ",".join(COLUMNS)}

    def __init__(self) -> None:
        self.sent: set[Row] = set()
        self.next = 0

    async def grow(self, is_over: asyncio.Event) -> None:
        """Sends chunk after chunk until it is over."""
        while not is_over.is_set():
            first, self.next = self.next, self.next + CHUNK
            self.sent |= set(await self.send([b"%d" % n for n in range(first, first + CHUNK)]))
            await asyncio.sleep(PAUSE)

    async def kill(self, target: str) -> None:
        """Kills what is not the driver's, and starts it again."""
        raise AssertionError(f"there is no {target} here")

    @abstractmethod
    async def send(self, values: list[bytes]) -> list[Row]:
        """Sends records, and says where they are once the broker has them."""

    @abstractmethod
    async def group(self) -> Mapping[str, Any]:
        """Where the group stands, by partition, without those where it has not begun."""

    @abstractmethod
    def done(self, checkpoint: Path) -> Mapping[str, Any]:
        """How far the group may stand at most, in the same positions."""

    @abstractmethod
    async def lag(self) -> int:
        """How far the group stands behind the topic's end."""


def committed_end(checkpoint: Path) -> Mapping[str, str]:
    """Where the last batch ended that Spark has logged as committed, by partition."""
    commits = checkpoint / "commits"
    numbers = [int(path.name) for path in _files(commits) if path.name.isdecimal()]
    if not numbers:
        return {}
    lines = (checkpoint / "offsets" / str(max(numbers))).read_text().splitlines()
    (positions,) = json.loads(lines[-1])["positions"].values()  # there is one topic
    return dict(positions)


def _files(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []
