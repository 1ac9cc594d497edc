"""Rows of the SQLite file, as the store's thread writes them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from consumer_sdk.records import Assignment, Outcome, OutcomeKind, Partition
from consumer_sdk.stores.fencing import Write
from consumer_sdk.stores.sqlite import rows
from consumer_sdk.stores.sqlite.file import Database


def test_save_that_comes_twice_or_late_is_durable_and_changes_nothing(tmp_path: Path) -> None:
    """What is stored is the same, or newer, and of the same claim."""
    partition = Partition("orders", "0")
    assignment = Assignment(partition, 1)
    with closing(Database(tmp_path / "state.db", busy_timeout=0.1)) as database:
        claimed = rows.claim("g", [assignment], "me", database)[assignment]
        assert not isinstance(claimed, Outcome)
        first, second = (
            Write(assignment, text, claimed[0]._replace(serial=serial))
            for serial, text in ((1, "first"), (2, "second"))
        )
        for write in (second, second, first):
            (outcome,) = rows.save("g", [write], database)
            assert outcome.kind is OutcomeKind.DURABLE
            assert rows.peek("g", [partition], database) == {partition: "second"}


def test_leases_are_written_over_the_version_that_was_read(tmp_path: Path) -> None:
    """Of two writers one is told that it was too late, also of two that write the first ones."""
    key = "g", "orders"
    with closing(Database(tmp_path / "state.db", busy_timeout=0.1)) as database:
        rows.make_lease_tables(database)
        assert rows.read_leases(key, database) == (0, None, {})
        for version, text in enumerate(("first", "second")):
            assert rows.replace_leases(key, version, text, database) is True
            assert rows.replace_leases(key, version, "late", database) is False
            assert rows.read_leases(key, database) == (version + 1, text, {})
