"""The page of the lineage names code and tests that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "lineage.md").read_text(encoding="utf-8")
TESTS = set(re.findall(r"`([\w/]+\.py)::(test_\w+)`", PAGE))
NAMES = set(re.findall(r"`((?:abc|errors|records|runtime|stores|trackers)\.[\w.]+)`", PAGE))


def _found(name: str) -> Any:
    """What a dotted name below the package leads to; an attribute of a dataclass is a field."""
    parts = ["consumer_sdk", *name.split(".")]
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, "__dataclass_fields__", {}).get(part) or getattr(found, part)
        return found
    raise AssertionError(name)


def test_page_has_a_table_for_each_article() -> None:
    """Five articles."""
    assert len(re.findall(r"^## ", PAGE, re.MULTILINE)) == PAGE.count("| mechanism |") == 5


@pytest.mark.parametrize("name", sorted(NAMES))
def test_code_that_the_page_names_exists(name: str) -> None:
    """A class or method that is renamed takes its row along."""
    assert _found(name) is not None


@pytest.mark.parametrize("path, test", sorted(TESTS))
def test_tests_that_the_page_names_exist(path: str, test: str) -> None:
    """So does a test."""
    folder = (
        ROOT / "consumer_sdk" / "testing" if path.startswith("conformance/") else ROOT / "tests"
    )
    source = (folder / path).read_text(encoding="utf-8")
    assert re.search(rf"def {test}\(", source)


def test_rows_have_four_columns() -> None:
    """A bar that is not escaped would hide a column."""
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {5}
