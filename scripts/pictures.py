"""Draws the pictures of docs/architecture.md (the rooms, and the way of a Kafka record) and of docs/concepts.md.

python scripts/pictures.py          # write docs/architecture-….svg and docs/concepts-….svg
python scripts/pictures.py --check  # say which of them is not what the sources tell

The rooms and their order are `LAYERS` of tests/test_repository.py, and the arrows are the imports of
the sources. The way is the first table of docs/architecture.md. scripts/concept_pictures.py has those of
docs/concepts.md. The same sources give the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from concept_pictures import concepts
from drawing import Place, arrow, label, rect, svg
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
SIZE = 9
"""Of the text, in pixels."""


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
        **{ROOT / f"docs/concepts-{name}.svg": text for name, text in concepts().items()},
    }


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


# -- the rooms ------------------------------------------------------------------------------


def rooms() -> str:
    """Returns the rooms from the highest layer down, with an arrow to each that a room needs."""
    places = _places()
    arrows = [
        _import(places[one], places[other]) for one, other in sorted(_needed()) if one in places
    ]
    floor = ", ".join(sorted(LAYERS[0]))
    boxes = [
        _box(place, "what every room may import" if name == FLOOR else name, _subject(name, floor))
        for name, place in places.items()
    ]
    left, top, _, high = places[FLOOR]
    note = "An arrow leads to what a room imports. Imports that other arrows imply are not drawn."
    parts = [*arrows, *boxes, label(left, top + high + 18, note)]
    return svg(WIDTH, top + high + 30, parts, size=SIZE, title="The rooms and what they import")


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


def _import(one: Place, other: Place) -> str:
    left, top, wide, high = one
    to_left, to_top, to_wide, _ = other
    if top == to_top:  # neighbours in a row
        start, end = (left + wide, to_left) if left < to_left else (left, to_left + to_wide)
        return arrow(start, top + high / 2, end, top + high / 2)
    middle = left + wide / 2
    end = middle if to_wide > wide else to_left + to_wide / 2
    shift = 0.2 * BOX * ((end < middle) - (end > middle))  # so that arrows end beside each other
    return arrow(middle - shift, top + high, end + (0 if to_wide > wide else shift), to_top)


def _box(place: Place, name: str, subject: str) -> str:
    left, top, _, _ = place
    texts = (label(left + 8, top + 15, name, "name"), label(left + 8, top + 29, subject))
    return "\n".join((rect(place), *texts))


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
            parts.append(arrow(MARGIN + 60, top - 18, MARGIN + 60, top))
        parts += _step((MARGIN, top, WIDTH - 2 * MARGIN, high), name, steps)
        top += high + 18
    return svg(WIDTH, top, parts, size=SIZE, title="The way of a Kafka record")


def _step(place: Place, name: str, steps: Iterable[Step]) -> Iterator[str]:
    left, top, _, high = place
    yield rect(place)
    yield label(left + 12, top + high / 2 + 4, name, "name")
    line = top + 17
    for step in steps:
        yield label(left + 340, line, step.task)
        for file in step.files:
            yield label(left + 92, line, file)
            line += LINE


if __name__ == "__main__":
    sys.exit(main())
