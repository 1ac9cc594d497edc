"""Takes runs from what is held, each partition in its turn."""

from __future__ import annotations

from collections.abc import Iterable

from consumer_sdk.adapters.memory.calls import Seam
from consumer_sdk.adapters.memory.holding import Holding
from consumer_sdk.records import Run

__all__ = ["Reader"]


class Reader:
    """Reads the holdings that may be read, within limits of records and (soft) bytes."""

    def __init__(self, seam: Seam | None) -> None:
        self._seam = seam
        self._turn = 0

    def read(self, holdings: Iterable[Holding], max_records: int, max_bytes: int) -> list[Run]:
        """The next runs; moves the positions."""
        readable = [holding for holding in holdings if holding.is_readable]
        if readable:
            self._turn = (self._turn + 1) % len(readable)
        runs: list[Run] = []
        for holding in readable[self._turn :] + readable[: self._turn]:
            if max_records <= 0 or max_bytes <= 0:
                break
            run = self._fault(holding) or holding.read(max_records, max_bytes)
            if run is not None:
                runs.append(run)
                max_records -= len(run.messages)
                max_bytes -= run.size
        return runs

    def _fault(self, holding: Holding) -> Run | None:
        if self._seam is not None and self._seam.strike("fetch.partition"):
            return holding.fault(self._seam.error("fetch.partition"))
        return None
