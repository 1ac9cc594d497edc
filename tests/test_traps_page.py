"""The page of traps names tests that exist, and every trap that a test names."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "traps.md").read_text(encoding="utf-8")
NUMBERED = re.compile(r'"""[^"\n]*?\b(T\d+(?:-T\d+)?(?:, T\d+(?:-T\d+)?)*)[:, ]')


def _path(name: str) -> Path:
    testing = ROOT / "consumer_sdk" / "testing"
    return testing / name if name.startswith("conformance/") else ROOT / "tests" / name


def test_every_test_that_the_page_names_exists() -> None:
    """A test that is renamed takes its row along."""
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", PAGE)
    assert len(named) > 100
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not re.search(rf"def {test}\(", _path(path).read_text(encoding="utf-8"))
    ]
    assert missing == []


def test_every_trap_that_a_test_names_has_a_row() -> None:
    """The numbers in docstrings lead somewhere."""
    rows = set(re.findall(r"^\| (T\d+) \|", PAGE, re.MULTILINE))
    files = [*(ROOT / "tests").rglob("test_*.py")]
    files += (ROOT / "consumer_sdk" / "testing" / "conformance").glob("*.py")
    used = {
        number
        for path in files
        for numbers in NUMBERED.findall(path.read_text(encoding="utf-8"))
        for number in re.findall(r"T\d+", numbers)
    }
    assert used >= {"T1", "T29"}
    assert used - rows == set()
