"""Lag from the offsets in progress reports."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.records import Partition
from consumer_sdk.spark_bridge.metrics.lag import (
    FEED,
    Lag,
    Origin,
    read_lag,
    read_offset,
    read_origin,
)

PARTITIONS = st.builds(Partition, st.sampled_from(["a", "b"]), st.sampled_from(["0", "1", "x"]))
PLACES = st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1))


def offset(places: dict[Partition, int]) -> str:
    """The JSON that the pull source hands to Spark."""
    positions: dict[str, dict[str, str]] = {}
    for partition, place in places.items():
        positions.setdefault(partition.stream, {})[partition.id] = str(place)
    return json.dumps({"version": 1, "positions": positions})


def lag_of(end: str | None, latest: str | None) -> Lag | None:
    """The lag that two texts of Spark's mean."""
    return read_lag(read_offset(end), read_offset(latest))


def origin_of(latest: str | None) -> Origin | None:
    """What a source reads from, by a text of Spark's."""
    return read_origin(read_offset(latest))


@given(PLACES, PLACES)
def test_each_partition_is_as_far_behind_as_its_positions_differ(
    read: dict[Partition, int], latest: dict[Partition, int]
) -> None:
    """Known where both offsets have the partition, never below 0, and none is left out."""
    found = lag_of(offset(read), offset(latest))
    assert found is not None
    assert found.behind.keys() == read.keys() | latest.keys()
    for partition, behind in found.behind.items():
        if partition in read and partition in latest:
            assert behind == max(0, latest[partition] - read[partition])
        else:
            assert behind is None


@given(PLACES, st.integers(0, 1000))
def test_a_query_that_reads_on_is_less_behind(read: dict[Partition, int], step: int) -> None:
    """Records that are read are no longer lag; what comes meanwhile is."""
    latest = {partition: place + 1000 for partition, place in read.items()}
    later = {partition: place + step for partition, place in read.items()}
    found = lag_of(offset(later), offset(latest))
    assert found is not None
    assert set(found.behind.values()) <= {1000 - step}


@given(st.dictionaries(PARTITIONS, st.none() | st.integers(0, 2**63 - 1)))
def test_the_summary_is_that_of_what_is_known(behind: dict[Partition, int | None]) -> None:
    """Least, most, average and total; None when nothing is known."""
    lag = Lag("positions", behind)
    known = [each for each in behind.values() if each is not None]
    if not known:
        assert (lag.least, lag.most, lag.average, lag.total) == (None, None, None, None)
        return
    assert (lag.least, lag.most, lag.total) == (min(known), max(known), sum(known))
    assert lag.average == pytest.approx(sum(known) / len(known))


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_feed_counts_segments(read: int, latest: int) -> None:
    """Its offset is the number of the next segment."""
    found = lag_of(json.dumps({"next": read}), json.dumps({"next": latest}))
    assert found == Lag("segments", {FEED: max(0, latest - read)})


def test_positions_that_are_no_numbers_have_no_lag() -> None:
    """Between two of Pulsar's message ids lies nobody knows how much."""
    end = '{"version":1,"positions":{"t":{"0":"5:3:-1"}}}'
    latest = '{"version":1,"positions":{"t":{"0":"5:9:-1"}}}'
    assert lag_of(end, latest) == Lag("positions", {Partition("t", "0"): None})


def test_equal_positions_are_no_lag_whatever_they_are() -> None:
    """A query on Pulsar that is at the end is known to be there."""
    end = '{"version":1,"positions":{"t":{"0":"5:9:-1"}}}'
    found = lag_of(end, end)
    assert found == Lag("positions", {Partition("t", "0"): 0})
    assert found.seconds(Partition("t", "0"), 50.0) == 0.0


def test_seconds_are_since_the_first_unread_record_waits() -> None:
    """They grow while nobody reports; none where something waits, and nobody knows since when."""
    end = '{"version":1,"positions":{"t":{"0":"7","1":"7","2":"7"}}}'
    latest = {"version": 1, "positions": {"t": {"0": "9", "1": "9", "2": "7"}}}
    found = lag_of(end, json.dumps(latest | {"waiting": {"t": {"0": 100.5}, "u": 3}}))
    assert found is not None
    assert [found.seconds(Partition("t", p), 103.0) for p in "012"] == [2.5, None, 0.0]
    assert found.seconds(Partition("t", "0"), 99.0) == 0.0  # a clock that was put back
    assert [found.records(Partition("t", p)) for p in "012"] == [2, 2, 0]


def test_feed_says_how_many_records_wait() -> None:
    """And since when; of an older one neither is known, and both are not 0."""
    latest = '{"next":4,"broker":"feed","group":"r","directory":"/d","records":30,"waiting":100}'
    found = lag_of('{"next":1}', latest)
    assert found is not None
    assert (found.records(FEED), found.seconds(FEED, 103.0)) == (30, 3.0)
    before = lag_of('{"next":1}', '{"next":4}')
    assert before is not None
    assert (before.records(FEED), before.seconds(FEED, 103.0)) == (None, None)
    assert origin_of(latest) == Origin("feed", "r", "/d")


@pytest.mark.parametrize("waiting", ["7", "[]", '{"t":7}', '{"t":{"0":"soon"}}', "null"])
def test_times_of_another_form_are_not_known(waiting: str) -> None:
    """Of a later version, perhaps."""
    head = '{"version":1,"positions":{"t":{"0":"9"}}'
    found = lag_of(f"{head}}}".replace("9", "7"), f'{head},"waiting":{waiting}}}')
    assert found == Lag("positions", {Partition("t", "0"): 2})


@pytest.mark.parametrize(
    "latest", [pytest.param(None, id="nothing"), "null", "7", "{", '{"next":4}']
)
def test_origin_is_not_known_where_nothing_says_it(latest: str | None) -> None:
    """Before PySpark 4.2 Spark does not ask a Python source."""
    assert origin_of(latest) is None
    assert origin_of('{"version":1,"positions":{},"broker":"kafka","group":null}') == Origin(
        "kafka", None
    )


def test_where_the_first_batch_began_is_no_position() -> None:
    """``since`` is in the first end only."""
    end = '{"version":1,"positions":{"t":{"0":"7"}},"since":{"t":{"0":"2"}}}'
    latest = '{"version":1,"positions":{"t":{"0":"9"}}}'
    assert lag_of(end, latest) == Lag("positions", {Partition("t", "0"): 2})


@pytest.mark.parametrize(
    "latest", [pytest.param(None, id="nothing"), "None", "null", "", "{", '{"next": 4}', "7"]
)
def test_without_a_latest_offset_the_lag_is_not_known(latest: str | None) -> None:
    """A source that has not looked yet reports none, which is not the same as no lag."""
    found = lag_of('{"version":1,"positions":{"t":{"0":"7"}}}', latest)
    assert found == Lag("positions", {Partition("t", "0"): None})


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(None, id="nothing"),
        "None",
        "17",
        '"text"',
        "[1]",
        "{",
        "{}",
        '{"orders":{"0":41}}',
        '{"next":"1"}',
        '{"next":true}',
        '{"next":1,"more":2}',
        '{"version":2,"positions":{}}',
        '{"version":1,"positions":[]}',
    ],
)
def test_offsets_of_other_sources_are_none_of_ours(end: str | None) -> None:
    """Spark's own Kafka and rate sources, files, and what comes after us."""
    assert lag_of(end, '{"next": 4}') is None


def test_the_first_offset_of_a_feed_says_how_far_it_is_too() -> None:
    """It also holds where the query began, which is no part of the lag."""
    found = lag_of('{"next":1,"since":0}', '{"next":4}')
    assert found is not None
    assert found.total == 3
