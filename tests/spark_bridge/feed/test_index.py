"""Recognising records that come again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.records import Assignment, Message, Partition
from consumer_sdk.spark_bridge.feed.index import KnownPositions, ranges_of, texts_of
from consumer_sdk.spark_bridge.feed.manifests import Manifest
from consumer_sdk.spark_bridge.feed.segments import Place, Rows
from tests.spark_bridge.unhurried import unhurried

PLACE = st.integers(0, 12) | st.sampled_from(["1", "2", "a"])
RECORDS = st.lists(st.tuples(st.sampled_from(["0", "1"]), PLACE), max_size=12)
Record = tuple[str, Place]


def as_rows(records: list[Record]) -> list[Rows]:
    """The rows of ``records``, each partition once."""
    found = []
    for name in dict.fromkeys(partition for partition, _ in records):
        partition = Partition("orders", name)
        places = [place for other, place in records if other == name]
        assignment = Assignment(partition, 1)
        found.append(
            Rows(partition, [Message.make(assignment, place, b"") for place in places], places)
        )
    return found


def as_records(rows: list[Rows]) -> list[Record]:
    """The records of ``rows``; message and place must be in step."""
    assert all(
        m.position == p for run in rows for m, p in zip(run.messages, run.places, strict=True)
    )
    return [(run.partition.id, place) for run in rows for place in run.places]


@unhurried
@given(st.lists(RECORDS))
def test_each_record_is_unseen_once(groups: list[list[Record]]) -> None:
    """Over any sequence of groups a record is let through once, as a plain set would do."""
    known = KnownPositions()
    model: set[Record] = set()
    for number, group in enumerate(groups):
        fresh = known.unseen(as_rows(group))
        assert sorted(as_records(fresh), key=str) == sorted(set(group) - model, key=str)
        model |= set(group)
        manifest = Manifest(
            number=number, segment="s", rows=0, size=0, crc32=0,
            ranges=ranges_of(fresh), texts=texts_of(fresh),
        )  # fmt: skip
        known.add(Manifest.decode(manifest.encode(), number, "here"), number)


def manifest_of(number: int, records: list[Record]) -> Manifest:
    """A manifest that has ``records``."""
    rows = as_rows(records)
    return Manifest(
        number=number, segment="s", rows=0, size=0, crc32=0,
        ranges=ranges_of(rows), texts=texts_of(rows),
    )  # fmt: skip


def test_a_text_that_came_again_is_forgotten_with_its_last_manifest() -> None:
    """A record was forgotten and fed again: the older manifest takes nothing from the younger."""
    record: Record = ("0", "a")
    known = KnownPositions()
    known.add(manifest_of(0, [record]), 0.0)
    known.add(manifest_of(1, [record]), 10.0)
    known.forget(5.0)
    assert known.unseen(as_rows([record])) == []
    assert known.remembered(9) == [(1, 1)]
    known.add(manifest_of(2, [("0", "b")]), 20.0)
    known.forget(5.0)
    assert as_records(known.unseen(as_rows([record]))) == [record]
