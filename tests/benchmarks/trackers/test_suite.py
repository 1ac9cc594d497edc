"""``python -m benchmarks trackers --quick``, as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.trackers.plots import PLOTS, draw
from benchmarks.trackers.suite import AIMS, Probe, Suite
from benchmarks.trackers.tables import tables


@pytest.fixture(scope="module")
def quick() -> dict[str, Any]:
    """What a smoke run printed last."""
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("builtins.print", lambda *texts, **_: lines.append(" ".join(texts)))
        assert main(["trackers", "--quick", "--json"]) == 0
    found: dict[str, Any] = json.loads(lines[-1])
    return found


@pytest.mark.campaign
def test_quick_run_reaches_every_figure(quick: dict[str, Any]) -> None:
    """Each promised figure is there, and no probe failed."""
    assert quick["failures"] == {}
    assert all(quick[key] > 0 for key in AIMS)


@pytest.mark.campaign
def test_quick_run_has_every_curve(quick: dict[str, Any]) -> None:
    """Each picture has what it shows."""
    assert quick["curves"].keys() == PLOTS.keys()


@pytest.mark.campaign
def test_tables_name_every_promise(quick: dict[str, Any]) -> None:
    """The page has a row for each promised figure."""
    text = tables(quick)
    assert all(f"| `{key}` |" in text for key in AIMS)


@pytest.mark.campaign
def test_pictures_of_the_same_figures_are_the_same(quick: dict[str, Any], tmp_path: Path) -> None:
    """A picture changes only when a measurement did; it carries no date."""
    paths = draw(quick["curves"], tmp_path)
    first = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in draw(quick["curves"], tmp_path)] == first
    assert all(b"<dc:date>" not in each for each in first)


def test_pictures_of_the_page_are_those_that_are_drawn(tmp_path: Path) -> None:
    """The page shows each curve."""
    page = (Path(__file__).parents[3] / "docs" / "performance.md").read_text(encoding="utf-8")
    curves = {name: {"ours": {"1": 1.0, "10": 2.0}} for name in PLOTS}
    assert all(f"]({path.name})" in page for path in draw(curves, tmp_path))


async def test_failing_probe_is_reported_and_not_tried_again() -> None:
    """One probe's error costs its own figures alone."""
    said: list[str] = []
    suite = Suite(said.append)
    for _ in range(2):
        await suite.run(Probe.of("retries.costs", rounds="none", shrink=1))
    assert len(said) == 1
    assert "retries.costs" in suite.report()["failures"]
