"""docs/concepts.md: its program prints what it shows. `tests/test_architecture_page.py` compares its pictures."""

from __future__ import annotations

from tests.docs.pages import Page

PAGE = Page("concepts")


def test_checkpoint_is_what_page_and_picture_show() -> None:
    """The picture has the numbers of a tracker, too."""
    shown = PAGE.shown("python checkpoint.py")
    assert PAGE.printed("python checkpoint.py") == shown
