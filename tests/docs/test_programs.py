"""Programs of docs that need no broker print what their pages show."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from consumer_sdk import Consumer
from consumer_sdk.abc import Adapter
from consumer_sdk.cli.run.config import read_config
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


@pytest.mark.parametrize(
    "command, settled",
    [
        ("python write_feed.py", "settled 5\n"),
        ("python write_batches.py", "web settled 5\nshop settled 5\n"),
    ],
)
def test_feed_is_written(tmp_path: Path, command: str, settled: str) -> None:
    """`tests/spark_bridge/test_docs_programs.py` reads it by read_feed.py."""
    assert Page("feed").printed(f"{command} {tmp_path}") == settled
    assert list(tmp_path.rglob("*.arrow"))


@pytest.mark.parametrize(
    "page, file",
    [
        ("kinesis", "share_clicks.py"),
        ("kinesis", "start_clicks.py"),
        ("kafka", "join_group.py"),
        ("pulsar", "queue_of_orders.py"),
        ("pulsar", "scans.py"),
    ],
)
def test_options_of_the_page_are_accepted(
    page: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects are made, and nothing is connected. Programs of examples do the same on real servers."""
    monkeypatch.chdir(tmp_path)
    made = runpy.run_path(str(Page(page).snippets / file)).values()
    assert any(isinstance(each, Adapter | Consumer) for each in made)


def test_tracker_does_what_its_program_asserts() -> None:
    """In track_lines.py."""
    runpy.run_path(str(Page("trackers").snippets / "track_lines.py"))


def test_configuration_file_of_the_page_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """consumer.toml, with the secrets that it names."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name in ("kafka", "admin"):
        (secrets / name).write_text("secret")
    monkeypatch.setenv("KAFKA_USER", "alice")
    Page("commands").copied(tmp_path, {"/run/secrets": str(secrets)})
    config = read_config(str(tmp_path / "consumer.toml"))
    options = config.consumer_options()
    assert (options["max_hole_age"], config.run_options()["concurrency"]) == (300.0, 500)
    assert config.admin_options()
