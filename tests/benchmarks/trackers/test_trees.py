"""The trees of the benchmark are trees that end."""

from __future__ import annotations

from benchmarks.trackers.runs import make_run
from benchmarks.trackers.trees import ack_in_table, fan_out, make_holding
from consumer_sdk.trackers.trees.table import TreeTable


def test_acks_in_the_table_end_every_tree() -> None:
    """What is timed is a whole life of each tree."""
    table = TreeTable()
    ack_in_table(table, 1_000)
    assert (table.opened, table.live) == (1_000, 0)


def test_branches_settle_their_messages() -> None:
    """The last ack of a tree reaches the tracker of its message."""
    holding, run = make_holding(), make_run(0, 1_000)
    holding.track(run)
    fan_out(run.messages)
    assert holding.tracker.unsettled == 0
    assert holding.tracker.checkpoint(0.0, 0.0).watermark == 999
