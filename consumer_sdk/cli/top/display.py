"""Draws a server's answer as lines of a terminal. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consumer_sdk.cli.top.client import printable
from consumer_sdk.cli.top.looking import Look, Row, rows
from consumer_sdk.errors import MissingExtraError

try:
    from rich.console import Console, Group, RenderableType
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text
except ImportError as _error:
    raise MissingExtraError("rich", "top") from _error

__all__ = ["Console", "draw"]

BARS = " ▁▂▃▄▅▆▇█"
SPARKS = 60
"""Seconds of the line of bars."""
EVENTS = 5
AROUND, EXPLAINED = 12, 6
"""Lines that all but rows and events take, and those of an explained row."""
NARROW = 90
"""Columns below which a table has the most important ones alone."""
FEW_ROWS = 6
STATES = {"reading": "green", "running": "green", "failed": "red", "closed": "red"}
KEYS = "↑↓ choose  p pause/resume  e explain  s sort by {sort}  {more}q leave"
OLD, RISKY = 30.0, 10.0
"""Seconds for which a record may pin a position before that is shown in red, and in yellow."""


def draw(
    view: Mapping[str, Any],
    look: Look,
    *,
    height: int | None = None,
    width: int = NARROW,
    note: str = "",
) -> RenderableType:
    """One consumer.

    Args:
        view: as ``/api/view`` answers.
        height: lines that there are; None for as many as it takes, without keys.
        width: columns that there are.
        note: what is said below: an error, or that what is shown is old.
    """
    one = printable(view["consumers"][look.consumer])
    shown = [printable(row) for row in rows(view, look)]
    room = _room(len(shown), look, height)
    parts: list[RenderableType] = [Panel(_head(one)), _table(shown, look, room, width)]
    if look.is_explained and shown:
        parts.append(Panel(_explained(shown[min(look.chosen, len(shown) - 1)])))
    parts += [Text(), _events(one, room)]
    if note:
        parts.append(Text(printable(note), "bold yellow"))
    if height is not None:
        more = "tab other consumer  " if len(view["consumers"]) > 1 else ""
        parts += [Text(), Text(KEYS.format(sort=look.sort, more=more), "dim")]
    return Group(*parts)


# -- the head -------------------------------------------------------------------------------


def _head(one: Mapping[str, Any]) -> RenderableType:
    totals, points = one["totals"], one["points"]
    settled, failed, dead = points[-1][1:4] if points else (None, None, None)
    first = Text.assemble(
        (f"{one['name']}: {', '.join(one['streams'][:3])}", "bold"),
        "  ",
        (one["state"], STATES.get(one["state"], "yellow")),
        f"   {one['held']} partitions",
    )
    handlers = f" of {_count(totals['handlers_limit'])}" if totals["handlers_limit"] else ""
    second = Text("   ").join(
        [
            Text(f"settled {_count(settled)}/s"),
            Text(f"failed {_count(failed)}/s", "yellow" if failed else ""),
            Text(f"dead {_count(dead)}/s", "red" if dead else ""),
            Text(f"in flight {_count(totals['in_flight'])} of {_count(totals['in_flight_limit'])}"),
            Text(f"handlers {_count(totals['handlers'])}{handlers}"),
            Text(f"retrying {_count(totals['retrying'])}"),
            Text(f"lag {_count(totals['lag'])}"),
        ]
    )
    sparks = Text(_sparks([point[1] for point in points]), "cyan")
    reasons = [Text(reason, "red") for reason in one["reasons"]]
    return Group(first, second, sparks, *reasons)


def _sparks(values: Sequence[float]) -> str:
    """A bar for each of the last values, relative to the highest of them."""
    shown = values[-SPARKS:]
    top = max(shown, default=0)
    highest = len(BARS) - 1
    return "".join(BARS[round(value / top * highest)] if top > 0 else BARS[0] for value in shown)


# -- partitions -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Room:
    """Lines for rows and for events; whether a person chooses among the rows."""

    rows: int
    events: int
    is_chosen: bool


def _room(count: int, look: Look, height: int | None) -> _Room:
    if height is None:
        return _Room(count, EVENTS, is_chosen=False)
    free = height - AROUND - (EXPLAINED if look.is_explained else 0)
    events = min(max(free - min(count, FEW_ROWS), 0), EVENTS)
    return _Room(max(free - events, 1), events, is_chosen=True)


COLUMNS = ("PARTITION", "POSITION", "", "UNSETTLED", "HOLES", "RETRYING", "LAG", "PINNED BY")
TEXTS = {"PARTITION", "", "PINNED BY"}
LEFT_OUT = {"UNSETTLED", "HOLES", "RETRYING"}


def _table(shown: Sequence[Row], look: Look, room: _Room, width: int) -> RenderableType:
    if not shown:
        return Text("No partition is assigned.", "dim")
    table = Table(box=None, header_style="dim", pad_edge=False, expand=True)
    kept = [each for each in COLUMNS if width >= NARROW or each not in LEFT_OUT]
    for name in kept:
        table.add_column(
            name,
            justify="left" if name in TEXTS else "right",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if name == "PINNED BY" else None,
        )
    chosen = min(look.chosen, len(shown) - 1)
    first = min(max(chosen - room.rows // 2, 0), max(len(shown) - room.rows, 0))
    last = min(first + room.rows, len(shown))
    for number, row in enumerate(shown[first:last], first):
        cells = dict(zip(COLUMNS, _cells(row), strict=True))
        style = "reverse" if room.is_chosen and number == chosen else ""
        table.add_row(*(cells[name] for name in kept), style=style)
    if last - first == len(shown):
        return table
    return Group(table, Text(f"{first + 1} to {last} of {len(shown)}", "dim"))


def _cells(row: Row) -> list[Text]:
    state = row["state"]
    lag = _seconds(row["lag_seconds"]) if row["lag"] is None else _count(row["lag"])
    return [
        Text(f"{row['stream']}/{row['id']}{_worker(row)}"),
        Text(row["position"] or "-"),
        Text(state, STATES.get(state, "yellow")),
        Text(_count(row["in_flight"])),
        Text(_count(row["holes"])),
        Text(_count(row["retrying"] + row["blocked"])),
        Text(lag),
        _pinned(row),
    ]


def _worker(row: Row) -> str:
    number = row.get("worker")  # servers before this one have none
    return "" if number is None else f" · worker {number}"


def _pinned(row: Row) -> Text:
    pinned = row["pinned"]
    if pinned is None:
        return Text("-", "dim")
    running = pinned["running"]
    state = pinned["state"] if running is None else f"running {_seconds(running)}"
    failed = f"  {pinned['attempts']} failed" if pinned["attempts"] else ""
    text = f"{pinned['position']}  {state}  {_seconds(pinned['age'])} old{failed}"
    if pinned["age"] >= OLD and row["holes"]:
        return Text(text, "red")
    return Text(text, "yellow" if pinned["age"] >= RISKY or pinned["attempts"] else "")


def _explained(row: Row) -> RenderableType:
    pinned = row["pinned"]
    lines = [Text(f"{row['stream']}/{row['id']}{_worker(row)} is {row['state']}", "bold")]
    if row["pause_text"]:
        lines.append(Text(f"paused by hand: {row['pause_text']}"))
    if pinned is None:
        lines.append(Text("nothing is unsettled"))
    else:
        key = "" if pinned["key"] is None else f", key {pinned['key']}"
        lines.append(Text(f"pinned by {pinned['position']}{key}: ").append_text(_pinned(row)))
    lines.append(
        Text(
            f"lanes {_count(row['lanes'])}, open trees {_count(row['trees'])}, settled "
            f"{_count(row['settled'])}, failed {_count(row['failed'])}, dead-lettered "
            f"{_count(row['dead_lettered'])}"
        )
    )
    return Group(*lines)


def _events(one: Mapping[str, Any], room: _Room) -> RenderableType:
    lines = []
    for event in one["events"][: room.events]:
        at = time.strftime("%H:%M:%S", time.localtime(event["time"]))
        count = f" x {event['count']}" if event["count"] > 1 else ""
        where = "" if event["text"] else ", ".join(event["partitions"])
        line = f"{at}  {event['kind']}{count}  {event['text']}{where}"
        lines.append(Text(line, "dim", no_wrap=True, overflow="ellipsis"))
    return Group(*lines)


# -- texts ----------------------------------------------------------------------------------

MINUTES, HOURS = 120, 7200
MANY, MILLION = 100_000, 1_000_000


def _count(number: float | None) -> str:
    if number is None:
        return "-"
    if number >= MILLION:
        return f"{number / MILLION:.1f}M"
    if number >= MANY:
        return f"{number / 1000:.0f}k"
    return f"{number:,.1f}".removesuffix(".0")


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < MINUTES:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < HOURS else f"{seconds / 3600:.1f} h"
