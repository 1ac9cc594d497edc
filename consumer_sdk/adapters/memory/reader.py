"""Takes runs from what is held, each partition in its turn."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from consumer_sdk.adapters.memory.calls import Seam
from consumer_sdk.adapters.memory.holding import Holding
from consumer_sdk.records import Run

__all__ = ["Reader"]


class Reader:
    """Reads the holdings that may have something, within limits of records and (soft) bytes.

    A fetch looks at no other: it costs the same however many partitions are held.

    Args:
        on_news: called when there may be something to fetch.
    """

    def __init__(self, seam: Seam | None, on_news: Callable[[], None]) -> None:
        self._seam = seam
        self._on_news = on_news
        self._ready: OrderedDict[Holding, None] = OrderedDict()

    def add(self, holding: Holding) -> None:
        """There may be something to read in it."""
        self._ready[holding] = None
        self._on_news()

    def read(self, max_records: int, max_bytes: int) -> list[Run]:
        """The next runs; moves the positions."""
        runs: list[Run] = []
        for _ in range(len(self._ready)):
            if max_records <= 0 or max_bytes <= 0:
                break
            run = self._read_next(max_records, max_bytes)
            if run is not None:
                runs.append(run)
                max_records -= len(run.messages)
                max_bytes -= run.size
        return runs

    def _read_next(self, max_records: int, max_bytes: int) -> Run | None:
        holding, _ = self._ready.popitem(last=False)
        if not holding.is_readable:
            return None  # it is added again when it may be read
        run = self._fault(holding) or holding.read(max_records, max_bytes)
        if run is not None and run.fault is None and holding.has_more:
            self._ready[holding] = None
        return run

    def _fault(self, holding: Holding) -> Run | None:
        if self._seam is not None and self._seam.strike("fetch.partition"):
            return holding.fault(self._seam.error("fetch.partition"))
        return None
