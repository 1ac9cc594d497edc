"""docs/api: each public name has its place in the reference."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

API = Path(__file__).parents[2] / "docs" / "api"
PACKAGES = ("", ".adapters", ".stores", ".trackers", ".spark_bridge", ".testing", ".dead_letters")


def documented() -> set[str]:
    """The names of which a page shows the docstring."""
    pages = (page.read_text(encoding="utf-8") for page in API.glob("*.rst"))
    return {
        name
        for page in pages
        for name in re.findall(
            r"^\.\. auto(?:class|exception|function):: (\w+)$", page, re.MULTILINE
        )
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_reference(package: str) -> None:
    """A name that a package exports has its docstring on a page."""
    names = import_module(f"consumer_sdk{package}").__all__
    assert set(names) - {"__version__"} <= documented()


def test_no_name_is_there_twice() -> None:
    """A docstring is on one page; other pages lead there."""
    text = "".join(page.read_text(encoding="utf-8") for page in API.glob("*.rst"))
    names = re.findall(r"^\.\. auto\w+:: (\w+)$", text, re.MULTILINE)
    assert len(names) == len(set(names))
