"""Draws the pictures of docs/architecture.md: the rooms, and the way of a Kafka record.

python scripts/pictures.py          # write docs/architecture-rooms.svg and docs/architecture-way.svg
python scripts/pictures.py --check  # say which of them is not what the sources tell

The rooms and their order are `LAYERS` of tests/test_repository.py, and the arrows are the imports of
the sources. The way is the first table of docs/architecture.md. The same sources give the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path

from house import ROOT, Step, ways_of_page

sys.path.insert(0, str(ROOT))
from tests.test_repository import LAYERS, imported_parts, modules, part_of

SUBJECTS = {
    "checkpoints": "a checkpoint as JSON and as bytes",
    "trackers": "which records are settled; pure",
    "adapters": "Kafka, Kinesis, Pulsar",
    "leases": "who reads which partition",
    "stores": "SQLite, ZooKeeper",
    "schema_registry": "schemas by id, over HTTP",
    "dead_letters": "destinations and readers by URL",
    "runtime": "Consumer: fetch, dispatch, flush",
    "telemetry": "Prometheus, OpenTelemetry, logs",
    "spark_bridge": "pull, feed, sink, decoding",
    "decoders": "JSON, Avro, Protobuf, pydantic",
    "admin": "the admin server and its page",
    "cli": "the command line",
    "testing": "fakes, conformance, servers",
}
COLUMNS = {"telemetry": 1, "spark_bridge": 2, "decoders": 3, "admin": 1, "cli": 2, "testing": 0} | {
    "runtime": 0,
    "dead_letters": 1,
    "adapters": 0,
    "leases": 1,
    "stores": 2,
    "schema_registry": 3,
}
"""The column in which a room is drawn; 0 for one that is not named."""
FLOOR = "floor"
"""The lowest layer, drawn as one box, since all others import it."""
WIDTH, MARGIN = 780, 14
BOX, HIGH, GAP_X, GAP_Y = 168, 36, 26, 30
LINE = 13
FONT = "'DejaVu Sans', 'Bitstream Vera Sans', 'Lucida Grande', Verdana, Arial, sans-serif"
STYLE = (
    f"text {{font: 9px {FONT}; fill: #000}} .name {{font-size: 11px; font-weight: bold}} "
    "rect {fill: #1f77b4; fill-opacity: 0.15; stroke: #1f77b4} "
    ".arrow {stroke: #555; fill: none; marker-end: url(#head)}"
)
HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M 0 0 L 8 4 L 0 8 z" fill="#555"/></marker></defs>'
)

Place = tuple[float, float, float, float]
"""Left, top, width and height of a box."""


def main() -> int:
    """Writes the pictures, or compares them with what is there; 1 if one is stale."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if one is stale")
    options = parser.parse_args()
    stale = [path for path, text in _pictures().items() if _text(path) != text]
    if options.check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run python scripts/pictures.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(_pictures()[path], encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


def _pictures() -> dict[Path, str]:
    return {
        ROOT / "docs/architecture-rooms.svg": rooms(),
        ROOT / "docs/architecture-way.svg": way(next(iter(ways_of_page().values()))),
    }


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


# -- the rooms ------------------------------------------------------------------------------


def rooms() -> str:
    """Returns the rooms from the highest layer down, with an arrow to each that a room needs."""
    places = _places()
    arrows = [
        _arrow(places[one], places[other]) for one, other in sorted(_needed()) if one in places
    ]
    floor = ", ".join(sorted(LAYERS[0]))
    boxes = [
        _box(place, "what every room may import" if name == FLOOR else name, _subject(name, floor))
        for name, place in places.items()
    ]
    left, top, _, high = places[FLOOR]
    note = "An arrow leads to what a room imports. Imports that other arrows imply are not drawn."
    return _svg(top + high + 30, [*arrows, *boxes, _label(left, top + high + 18, note)])


def _subject(name: str, floor: str) -> str:
    return floor if name == FLOOR else SUBJECTS.get(name, "")


def _places() -> dict[str, Place]:
    found: dict[str, Place] = {}
    for row, parts in enumerate(reversed(LAYERS[1:])):
        for name in sorted(parts):
            left = MARGIN + COLUMNS.get(name, 0) * (BOX + GAP_X)
            found[name] = (left, MARGIN + row * (HIGH + GAP_Y), BOX, HIGH)
    top = MARGIN + (len(LAYERS) - 1) * (HIGH + GAP_Y)
    return found | {FLOOR: (MARGIN, top, WIDTH - 2 * MARGIN, HIGH)}


def _needed() -> set[tuple[str, str]]:
    """Returns the imports between rooms without those that follow from others."""
    uses: dict[str, set[str]] = {}
    for path in modules():
        found = {_room(part) for part in imported_parts(path)} - {_room(part_of(path))}
        uses.setdefault(_room(part_of(path)), set()).update(found)
    return {
        (one, other)
        for one, direct in uses.items()
        for other in direct
        if not any(other in _reached(uses, between) for between in direct - {other})
    }


def _room(part: str) -> str:
    return FLOOR if part in LAYERS[0] else part


def _reached(uses: Mapping[str, set[str]], room: str) -> set[str]:
    found: set[str] = set()
    todo = [room]
    while todo:
        new = uses.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found


def _arrow(one: Place, other: Place) -> str:
    left, top, wide, high = one
    to_left, to_top, to_wide, _ = other
    if top == to_top:  # neighbours in a row
        start, end = (left + wide, to_left) if left < to_left else (left, to_left + to_wide)
        return _line(start, top + high / 2, end, top + high / 2)
    middle = left + wide / 2
    end = middle if to_wide > wide else to_left + to_wide / 2
    shift = 0.2 * BOX * ((end < middle) - (end > middle))  # so that arrows end beside each other
    return _line(middle - shift, top + high, end + (0 if to_wide > wide else shift), to_top)


# -- the way of a record ----------------------------------------------------------------------


def way(steps: Iterable[Step]) -> str:
    """Returns a box for each step, with the files that the record passes in it."""
    groups: dict[str, list[Step]] = {}
    for step in steps:
        groups.setdefault(step.name, []).append(step)
    return _svg_of_way(groups)


def _svg_of_way(groups: Mapping[str, list[Step]]) -> str:
    parts: list[str] = []
    top: float = MARGIN
    for number, (name, steps) in enumerate(groups.items()):
        files = [file for step in steps for file in step.files]
        high = LINE * len(files) + 14
        if number:
            parts.append(_line(MARGIN + 60, top - 18, MARGIN + 60, top))
        parts += _step((MARGIN, top, WIDTH - 2 * MARGIN, high), name, steps)
        top += high + 18
    return _svg(top, parts)


def _step(place: Place, name: str, steps: Iterable[Step]) -> Iterator[str]:
    left, top, wide, high = place
    yield f'<rect x="{left}" y="{top}" width="{wide}" height="{high}"/>'
    yield _label(left + 12, top + high / 2 + 4, name, "name")
    line = top + 17
    for step in steps:
        yield _label(left + 340, line, step.task)
        for file in step.files:
            yield _label(left + 92, line, file)
            line += LINE


# -- what both are made of ----------------------------------------------------------------------


def _svg(high: float, parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high:g}" '
        f'width="{WIDTH}" height="{high:g}">\n<style>{STYLE}</style>\n{HEAD}\n'
        f'<path d="M 0 0 H {WIDTH} V {high:g} H 0 z" fill="#fff"/>\n{body}\n</svg>\n'
    )


def _box(place: Place, name: str, subject: str) -> str:
    left, top, wide, high = place
    rect = f'<rect x="{left}" y="{top}" width="{wide}" height="{high}" style="fill: #dbe9f4; fill-opacity: 1"/>'
    return "\n".join(
        (rect, _label(left + 8, top + 15, name, "name"), _label(left + 8, top + 29, subject))
    )


def _label(left: float, line: float, text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{left:g}" y="{line:g}"{named}>{escape(text)}</text>'


def _line(left: float, top: float, to_left: float, to_top: float) -> str:
    return f'<path class="arrow" d="M {left:g} {top:g} L {to_left:g} {to_top:g}"/>'


if __name__ == "__main__":
    sys.exit(main())
