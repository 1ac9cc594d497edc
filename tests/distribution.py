"""How one run's tests are shared out among the workers of pytest-xdist, and what the run leaves out.

The unit of work is a file: its fixtures are made once. All that uses the Spark session is one unit, because a session
takes ten seconds and half a gigabyte; it comes first, since it is the longest. So is all that harms a server of one
kind: the worker starts that server once. Files that use servers come next, and those of pure code last: they are short,
and fill what is left. Before all of these come campaigns that say how many minutes they take, each a unit by itself: one
that begins last keeps one worker busy while the others have nothing to do.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SERVERS", "Distribution", "rank", "unit_of"]

SERVERS = ("kafka", "kinesis", "pulsar", "zookeeper")
"""Marks of the tests that use a server."""

_CAMPAIGNS = "campaigns"
_ONE_WORKERS = (
    "spark: SparkSession",
    "own_pulsar_server:",
    "own_kafka_server:",
    "own_zookeeper_server:",
)
"""Arguments of tests. All files in which one stands, and none before it, go to one worker."""
_LONG = "mark.campaign(minutes="
"""In a file with such a test each test is a unit."""


class _ByFile(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives a worker a file at a time, a long test, or all files of what one worker alone should have."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(self.config.rootpath, nodeid)


def unit_of(root: Path, nodeid: str) -> str:
    """The name of what one worker gets as a whole, of which this test is a part."""
    unit = _unit(root / nodeid.partition("::")[0])
    return nodeid if unit == _LONG else unit


@cache
def _unit(path: Path) -> str:
    # The controller collects nothing: it knows the names of tests, not their marks or fixtures.
    text = path.read_text(encoding="utf-8")
    return next((words for words in (*_ONE_WORKERS, _LONG) if words in text), str(path))


class Distribution:
    """Hooks of the controller and of its workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._left_out: Counter[str] = Counter()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> LoadScopeScheduling:
        """In the order in which the workers collected."""
        config.option.loadscopereorder = False
        return _ByFile(config, log)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The longest work first."""
        items.sort(key=rank)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count the campaigns that are left out."""
        campaigns = [item for item in items if item.get_closest_marker("campaign")]
        self._left_out.update(item.nodeid.split("/")[1] for item in campaigns)
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[_CAMPAIGNS] = dict(self._left_out)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Every worker left out the same."""
        self._left_out = Counter(getattr(node, "workeroutput", {}).get(_CAMPAIGNS, {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what `make campaigns` would run."""
        if self._left_out:
            parts = ", ".join(f"{part} {count}" for part, count in sorted(self._left_out.items()))
            terminalreporter.write_line(
                f"left to make campaigns: {self._left_out.total()} tests ({parts})"
            )


def rank(item: pytest.Item) -> tuple[float, int]:
    """What comes first has the lowest."""
    minutes = [mark.kwargs.get("minutes", 0) for mark in item.iter_markers("campaign")]
    if item.get_closest_marker("spark"):
        kind = 0
    else:
        kind = 1 if any(item.get_closest_marker(mark) for mark in SERVERS) else 2
    return -max(minutes, default=0), kind
