"""Takes runs from what is held, each partition in its turn."""

from __future__ import annotations

from collections.abc import Iterable

from consumer_sdk.adapters.fetching import Turns
from consumer_sdk.adapters.memory.calls import Seam
from consumer_sdk.adapters.memory.holding import Holding
from consumer_sdk.records import Run

__all__ = ["Reader"]


class Reader:
    """Reads the holdings that may be read, within limits of records and (soft) bytes."""

    def __init__(self, seam: Seam | None) -> None:
        self._seam = seam
        self._turns = Turns()

    def read(self, holdings: Iterable[Holding], max_records: int, max_bytes: int) -> list[Run]:
        """The next runs; moves the positions."""
        readable = [holding for holding in holdings if holding.is_readable]
        return self._turns.take(readable, self._take, max_records, max_bytes)

    def _take(self, holding: Holding, max_records: int, max_bytes: int) -> Run | None:
        return self._fault(holding) or holding.read(max_records, max_bytes)

    def _fault(self, holding: Holding) -> Run | None:
        if self._seam is not None and self._seam.strike("fetch.partition"):
            return holding.fault(self._seam.error("fetch.partition"))
        return None
