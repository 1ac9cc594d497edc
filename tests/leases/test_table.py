"""The text of the leases: reads back, and is refused where it is not ours."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.errors import CheckpointFormatError, CheckpointMismatchError
from consumer_sdk.leases.table import LeaseTable
from consumer_sdk.records.leases import Lease

NAMES = st.text(min_size=1, max_size=8)
TABLES = st.builds(
    LeaseTable,
    identity=st.none() | st.text(),
    fence=st.integers(9, 2**70),
    leases=st.dictionaries(
        NAMES,
        st.builds(
            Lease,
            parents=st.lists(NAMES, max_size=2).map(tuple),
            owner=st.none() | NAMES,
            fence=st.integers(0, 9),
            wanted_by=st.none() | NAMES,
            ended=st.booleans(),
        ),
        max_size=5,
    ),
)

TEXT = LeaseTable(
    "arn",
    17,
    {
        "a": Lease(ended=True, fence=3),
        "b": Lease(("a",), owner="m", fence=17, wanted_by="n"),
        "c": Lease(("a",)),
    },
).encode()


def test_text_is_for_people_and_says_no_more_than_it_must() -> None:
    """What a lease does not say is nobody, nothing, or false."""
    assert json.loads(TEXT) == {
        "version": 1,
        "identity": "arn",
        "fence": 17,
        "leases": {
            "a": {"fence": 3, "ended": True},
            "b": {"owner": "m", "fence": 17, "wanted_by": "n", "parents": ["a"]},
            "c": {"parents": ["a"]},
        },
    }


@given(TABLES)
def test_text_reads_back(table: LeaseTable) -> None:
    """Whatever the names."""
    assert LeaseTable.decode(table.encode(), "here") == table


def test_text_of_an_older_version_is_read() -> None:
    """It does not say since when."""
    text = '{"version":1,"identity":"i","fence":2,"leases":{"a":{"fence":2,"ended":true},"b":{}}}'
    table = LeaseTable.decode(text, "here")
    assert table.encode() == text
    assert table.leases["a"] == Lease(ended=True, fence=2)
    assert table.leases["a"].since is None


def test_six_thousand_partitions_fit_into_a_znode() -> None:
    """Each with a parent and an owner; ZooKeeper takes a million bytes."""
    leases = {
        f"shardId-{number:012}": Lease(
            (f"shardId-{number:012}",), f"{number:040x}", number, since=1_763_000_000
        )
        for number in range(6000)
    }
    assert len(LeaseTable(fence=6000, leases=leases).encode()) < 1_000_000


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"version": 2, "fence": 0, "leases": {}},
        {"version": 1, "fence": 0},
        {"version": 1, "fence": "0", "leases": {}},
        {"version": 1, "fence": True, "leases": {}},
        {"version": 1, "identity": 5, "fence": 0, "leases": {}},
        {"version": 1, "fence": 0, "leases": []},
        {"version": 1, "fence": 0, "leases": {"a": None}},
        {"version": 1, "fence": 0, "leases": {"a": {"fence": 1}}},
        {"version": 1, "fence": 0, "leases": {"a": {"fence": -1}}},
        {"version": 1, "fence": 0, "leases": {"a": {"owner": 1}}},
        {"version": 1, "fence": 0, "leases": {"a": {"ended": 1}}},
        {"version": 1, "fence": 0, "leases": {"a": {"ended": None}}},
        {"version": 1, "fence": 0, "leases": {"a": {"parents": "b"}}},
        {"version": 1, "fence": 0, "leases": {"a": {"parents": [1]}}},
        {"version": 1, "fence": 0, "leases": {"a": {"wanted_by": []}}},
        {"version": 1, "fence": 0, "leases": {"a": {"since": "now"}}},
    ],
)
def test_foreign_content_is_refused_with_its_place(body: Any) -> None:
    """Another version, another type, a fence that cannot be: a typed error, never a guess."""
    with pytest.raises(CheckpointFormatError, match="at this place"):
        LeaseTable.decode(json.dumps(body), "at this place")


def test_damaged_text_is_refused_or_harmless() -> None:
    """Cut, changed, repeated: 5 000 damages, and never another error."""
    chance = random.Random(1)
    for _ in range(5000):
        text = list(TEXT)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(text))
            text[at : at + chance.randint(0, 9)] = chance.choice(['"', "}", "[", "9", "", "\x00"])
        try:
            table = LeaseTable.decode("".join(text), "here")
        except CheckpointFormatError:
            continue
        assert LeaseTable.decode(table.encode(), "here") == table


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "1" * 100_000, "\x00", "NaN"])
def test_text_that_is_no_json_is_refused(text: str) -> None:
    """Deep nesting and endless digits are not worth a crash."""
    with pytest.raises(CheckpointFormatError):
        LeaseTable.decode(text, "here")


def test_leases_of_another_stream_of_the_same_name_are_refused_and_stay() -> None:
    """In two regions, say; the same stream made again starts anew."""
    table = LeaseTable()
    table.sync({"a": ()}, "arn:one@1")
    table.take("m", {"a": 0})
    with pytest.raises(CheckpointMismatchError, match="another group"):
        table.sync({"b": ()}, "arn:other@2")
    assert table.leases["a"].owner == "m"
    table.sync({"a": ()}, "arn:one@2")
    assert table.leases["a"].owner is None
