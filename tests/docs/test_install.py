"""docs/install.md, and what other pages say to install: the extras exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, Page

PROJECT = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"].keys()
PAGES = sorted([*DOCS.glob("*.md"), DOCS.parent / "README.md"])


def test_page_lists_each_extra() -> None:
    """An extra that is added needs a row."""
    assert set(re.findall(r"^\| `([\w-]+)` \|", Page("install").text, re.MULTILINE)) == EXTRAS


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_what_a_page_says_to_install_exists(path: Path) -> None:
    """Of this package, by its name or by the path of a clone."""
    named = re.findall(r"(?:consumer[-_]sdk|'\.)\[([\w,-]+)\]", path.read_text("utf-8"))
    assert {extra for extras in named for extra in extras.split(",")} <= EXTRAS
