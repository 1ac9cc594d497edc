"""What Spark saw: one file per micro-batch, with the delays and the origin of every record."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from examples.flights.delays import UNKNOWN, Delays

Origin = tuple[int, int]
"""A record's partition and offset in the topic."""


def write_batch(folder: Path, batch: int, cells: pa.Table) -> None:
    """Writes what one micro-batch saw. A second write of the same micro-batch replaces the first.

    Args:
        folder: the ledger.
        batch: the micro-batch's number.
        cells: columns week, carrier, hour, built, flights, minutes, origins (a list of partition
            and offset).
    """
    path = folder / f"{batch:06}.parquet"
    draft = path.with_suffix(".draft")
    pq.write_table(cells, draft)
    draft.replace(path)


class Ledger:
    """Sums up the files of a folder, each once.

    Attributes:
        delays: of everything seen so far.
        seen: how often each record was seen: once, if all is well.
    """

    def __init__(self, folder: Path) -> None:
        self.delays = Delays()
        self.seen: Counter[Origin] = Counter()
        self._folder = folder
        self._read: set[Path] = set()

    def refresh(self) -> None:
        """Adds the files that are new."""
        for path in sorted(set(self._folder.glob("*.parquet")) - self._read):
            self._read.add(path)
            for row in pq.read_table(path).to_pylist():
                self._add(row)

    def _add(self, row: dict[str, Any]) -> None:
        when_built = row["built"] if row["built"] is not None else UNKNOWN
        amount = row["flights"], row["minutes"]
        self.delays.add(row["carrier"], row["hour"], *amount, week=row["week"], built=when_built)
        self.seen.update((origin["partition"], origin["offset"]) for origin in row["origins"])
