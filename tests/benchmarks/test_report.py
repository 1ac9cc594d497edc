"""What becomes of results."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.report import PAGE, TABLES


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_has_a_table_and_its_place(name: str) -> None:
    """Else `make bench` fails after an hour, when it writes them."""
    assert name in TABLES
    page = PAGE.read_text(encoding="utf-8")
    assert f"<!-- {name}: begin -->" in page
    assert f"<!-- {name}: end -->" in page
