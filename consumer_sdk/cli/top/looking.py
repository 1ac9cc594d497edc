"""What the screen shows, and how a key changes that. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["SORTS", "Look", "Row", "Wish", "pressed", "rows"]

Row = Mapping[str, Any]


def _age(row: Row) -> float:
    return -1.0 if row["pinned"] is None else float(row["pinned"]["age"])


SORTS: Mapping[str, Callable[[Row], float]] = {
    "partition": lambda _row: 0,
    "pinned": lambda row: -_age(row),
    "lag": lambda row: -(row["lag"] or row["lag_seconds"] or 0),
    "unsettled": lambda row: -row["in_flight"],
}
"""What rows are sorted by; among equals their order stays."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the screen shows.

    Attributes:
        consumer: its number, from 0.
        chosen: the row that keys are about, from 0.
        sort: one of `SORTS`.
        is_explained: all that is known of the chosen row is shown.
    """

    consumer: int = 0
    chosen: int = 0
    sort: str = "partition"
    is_explained: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """A person wants a partition to be paused, or resumed."""

    consumer: int
    stream: str
    id: str
    is_paused: bool


def rows(view: Mapping[str, Any], look: Look) -> Sequence[Row]:
    """The rows of the consumer that is shown, in their order."""
    found: list[Row] = view["consumers"][look.consumer]["partitions"]
    return sorted(found, key=SORTS[look.sort])


def pressed(key: str, view: Mapping[str, Any], look: Look) -> Look | Wish | None:
    """What a key does: it changes the look, asks for a pause, or ends the program (None)."""
    if key in ENDS:
        return None
    shown = rows(view, look)
    last = max(len(shown) - 1, 0)
    look = replace(look, chosen=min(look.chosen, last))
    if key == "p" and shown:
        return _wish(look, shown[look.chosen])
    return _looks(look, last, len(view["consumers"])).get(key, look)


ENDS = {"q", "\x03", "\x04"}


def _looks(look: Look, last: int, consumers: int) -> Mapping[str, Look]:
    """For each key, what the screen shows after it."""
    down = replace(look, chosen=min(look.chosen + 1, last))
    up = replace(look, chosen=max(look.chosen - 1, 0))
    names = list(SORTS)
    sort = names[(names.index(look.sort) + 1) % len(names)]
    return {
        "down": down,
        "j": down,
        "up": up,
        "k": up,
        "e": replace(look, is_explained=not look.is_explained),
        "s": replace(look, sort=sort, chosen=0),
        "\t": Look((look.consumer + 1) % consumers, sort=look.sort),
    }


def _wish(look: Look, row: Row) -> Wish:
    is_paused = not (row["is_by_hand"] or row["state"] == "paused: lag")
    return Wish(look.consumer, row["stream"], row["id"], is_paused)
