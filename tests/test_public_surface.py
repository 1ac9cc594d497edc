"""The public names and their signatures are those that tests/public_surface.txt lists."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from runpy import run_path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = run_path(str(Path(__file__).parent.parent / "scripts" / "public_surface.py"))
ADVICE = """\
The public surface is another than tests/public_surface.txt lists:

{}

If this is meant: run `python scripts/public_surface.py`, and add a fragment to changes/.
What was removed or changed needs a deprecation first: see docs/versions.md."""


def test_public_surface_is_the_one_that_was_reviewed() -> None:
    """A change of a name or signature is a change of a line in a file, which a reviewer sees."""
    before = SCRIPT["parsed"](SCRIPT["FILE"].read_text(encoding="utf-8"))
    lines = SCRIPT["differences"](before, SCRIPT["surface"]())
    if lines:
        pytest.fail(ADVICE.format("\n".join(lines)), pytrace=False)


def test_file_is_what_the_script_writes() -> None:
    """Also its order and its head."""
    text = SCRIPT["FILE"].read_text(encoding="utf-8")
    assert SCRIPT["written"](SCRIPT["parsed"](text)) == text


class Colour(Enum):
    """Of a lamp."""

    RED = 1


class Base:
    """Not exported: its names are those of `Lamp`."""

    def __init__(self, watts: float, *, colour: Colour = Colour.RED) -> None:
        self.watts: float = watts
        self._colour = colour

    async def shine(self, /, seconds: float = 1.0, *more: float) -> bool:
        """For so long."""
        return sum(more) < seconds

    @property
    def hue(self) -> Colour:
        """Of the light."""
        return self._colour


class Lamp(Base):
    """Exported."""

    socket: int
    """Of the wall. :meta private:"""

    def heat(self) -> None:
        """Not what it is for.

        :meta private:
        """

    @classmethod
    def of(cls, text: str) -> Lamp:
        """From its label."""
        return cls(float(text))


def light(lamp: Lamp, *, seconds: float | None = None) -> None:
    """Use one."""


EXPECTED = {
    "lamps.Colour": ": class(Enum)",
    "lamps.Colour.RED": " = 1",
    "lamps.Lamp": ": class(Base)(watts: float, *, colour: Colour = Colour.RED)",
    "lamps.Lamp.hue": ": property -> Colour",
    "lamps.Lamp.of": ": class method (text: str) -> Lamp",
    "lamps.Lamp.shine": ": method async (seconds: float = 1.0, *more: float) -> bool",
    "lamps.Lamp.watts": ": float",
    "lamps.light": ": (lamp: Lamp, *, seconds: float | None = None) -> None",
    "lamps.bulbs.Lamp": " = lamps.Lamp",
}


def module(monkeypatch: pytest.MonkeyPatch, name: str, **names: Any) -> None:
    """Make a module that exports names."""
    made: Any = ModuleType(name)
    made.__all__ = list(names)
    vars(made).update(names)
    monkeypatch.setitem(sys.modules, name, made)


@pytest.fixture
def lamps(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The surface of two modules."""
    monkeypatch.setitem(SCRIPT["surface"].__globals__, "PACKAGES", {"consumer_sdk", "tests"})
    module(monkeypatch, "lamps", Colour=Colour, Lamp=Lamp, light=light)
    module(monkeypatch, "lamps.bulbs", Lamp=Lamp)
    found: dict[str, str] = SCRIPT["surface"](("lamps", "lamps.bulbs"))
    return found


def test_surface_has_names_members_and_signatures(lamps: dict[str, str]) -> None:
    """Those of a base that nobody can import too, none that is marked as private; a name of two modules is described once."""
    assert lamps == EXPECTED


def test_differences_say_what_was_added_removed_and_changed(lamps: dict[str, str]) -> None:
    """A change shows both."""
    now = {**lamps, "lamps.Lamp.watts": ": int", "lamps.dim": ": ()"}
    del now["lamps.Colour.RED"]
    assert SCRIPT["differences"](lamps, now) == [
        "removed: lamps.Colour.RED = 1",
        "added: lamps.dim: ()",
        "changed: lamps.Lamp.watts\n  was: float\n  is: int",
    ]
