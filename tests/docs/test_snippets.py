"""docs/snippets: no program that no page shows, and none that no test runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import SNIPPETS, Page

TESTS = Path(__file__).parents[1]
# A forge shows no included file: see `test_readme.py`.
FOLDERS = sorted(
    path.name for path in SNIPPETS.iterdir() if path.is_dir() and path.name != "readme"
)


@pytest.mark.parametrize("name", FOLDERS)
def test_page_includes_each_of_its_snippets(name: str) -> None:
    """A folder of snippets belongs to the page of its name."""
    files = {f"{name}/{path.name}" for path in (SNIPPETS / name).glob("*.*")}
    assert Page(name).included() == files


def test_each_snippet_is_run() -> None:
    """A test names each of them."""
    paths = TESTS.rglob("*.py")
    tests = "".join(path.read_text(encoding="utf-8") for path in paths)
    files = [path.name for path in SNIPPETS.glob("*/*.*")]
    assert [name for name in files if name not in tests] == []
