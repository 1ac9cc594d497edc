"""Programs of docs that need no broker print what their pages show."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import Page
from tests.docs.test_testing import run_tests


@pytest.mark.parametrize(
    "page, command",
    [
        ("concepts", "python checkpoint.py"),
        ("delivery", "python pull_orders.py"),
        ("fan-out", "python split_lines.py"),
        ("fan-out", "python receipts.py"),
    ],
)
def test_program_prints_what_the_page_shows(page: str, command: str) -> None:
    """To stdout; the log goes to stderr."""
    assert Page(page).printed(command) == Page(page).shown(command)


def test_group_runs_until_it_is_interrupted() -> None:
    """Its three consumers, of which each prints when it will."""
    shown = Page("shutdown").shown("python three_streams.py")
    with Page("shutdown").running("python three_streams.py") as group:
        assert sorted(group.lines(3).splitlines()) == sorted(shown.splitlines()[:-1])
        assert group.until_interrupted("^C\n") == "^C\n"


def test_stuck_record_is_printed() -> None:
    """By print_stuck.py; what the page shows comes from `test_gap_budget.py`, with its alarm.txt and explained.txt."""
    first, second = Page("stuck").printed("python print_stuck.py").splitlines()
    assert re.match(r"orders/0 pinned by 0 \(running for .* s, key b'0', .*\); holes 1,", first)
    assert second == "orders/1 settled up to None; nothing is unsettled"


def test_decoders_test_passes() -> None:
    """That of decode_orders.py."""
    folder = Page("retries").snippets
    assert run_tests(folder, "decode_orders.py").startswith("1 passed")
