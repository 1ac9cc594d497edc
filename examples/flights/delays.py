"""Departure delays per carrier, hour, week and age of aircraft: summed up, shown as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import TypeVar

Key = TypeVar("Key", str, int)

HOURS = range(5, 24)  # when flights are scheduled; one flight in 336 776 leaves at 1
TABLE_ROWS = 8
UNKNOWN = 0
"""Stands for the decade of an aircraft that the table of planes does not have."""


@dataclass
class Cell:
    """Flights of one carrier in one hour of the day."""

    flights: int = 0
    minutes: float = 0.0

    @property
    def mean(self) -> float:
        """Minutes of delay per flight."""
        return self.minutes / self.flights if self.flights else 0.0

    def add(self, flights: int, minutes: float) -> None:
        """Counts more flights, and their minutes of delay in all."""
        self.flights += flights
        self.minutes += minutes


@dataclass
class Delays:
    """Flights and delays, counted in three ways; a cell without flights is left out.

    Attributes:
        cells: by carrier and scheduled hour.
        weeks: by carrier and the first day of a window of seven days.
        built: by the decade in which the aircraft was built, or `UNKNOWN`.
    """

    cells: defaultdict[tuple[str, int], Cell] = field(default_factory=lambda: defaultdict(Cell))
    weeks: defaultdict[tuple[str, date], Cell] = field(default_factory=lambda: defaultdict(Cell))
    built: defaultdict[int, Cell] = field(default_factory=lambda: defaultdict(Cell))

    def add(
        self, carrier: str, hour: int, flights: int, minutes: float, *, week: date, built: int
    ) -> None:
        """Counts more flights."""
        for cell in (self.cells[carrier, hour], self.weeks[carrier, week], self.built[built]):
            cell.add(flights, minutes)

    def by_carrier(self) -> dict[str, Cell]:
        """Each carrier's day, the busiest one first."""
        days = _sums((carrier, cell) for (carrier, _), cell in self.cells.items())
        return dict(sorted(days.items(), key=lambda item: -item[1].flights))

    def by_hour(self) -> dict[int, Cell]:
        """All carriers together, in the order of the hours."""
        return dict(sorted(_sums((hour, cell) for (_, hour), cell in self.cells.items()).items()))

    def table(self) -> list[str]:
        """Mean delays of the busiest carriers: 80 columns, a carrier a line."""
        hours = "".join(f"{hour:4}" for hour in HOURS)
        return [
            "Departure delays in minutes, mean per carrier and scheduled hour",
            f"    {hours}",
            *(self._row(carrier) for carrier in list(self.by_carrier())[:TABLE_ROWS]),
            f" by the decade in which the aircraft was built: {self._decades()}",
        ]

    def by_decade(self) -> dict[str, Cell]:
        """By the decade in which the aircraft was built; unknown aircraft come last."""
        known = {f"{decade}s": cell for decade, cell in sorted(self.built.items()) if decade}
        return known | ({"?": self.built[UNKNOWN]} if UNKNOWN in self.built else {})

    def _decades(self) -> str:
        return "  ".join(f"{name} {round(cell.mean)}" for name, cell in self.by_decade().items())

    def _row(self, carrier: str) -> str:
        cells = (self.cells.get((carrier, hour)) for hour in HOURS)
        return f" {carrier:3}" + "".join(
            f"{round(cell.mean):4}" if cell else "   ·" for cell in cells
        )


def _sums(cells: Iterable[tuple[Key, Cell]]) -> dict[Key, Cell]:
    sums: defaultdict[Key, Cell] = defaultdict(Cell)
    for key, cell in cells:
        sums[key].add(cell.flights, cell.minutes)
    return sums
