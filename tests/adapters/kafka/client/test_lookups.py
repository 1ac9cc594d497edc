"""Look-ups at brokers: what is asked in each version, and what the answers say."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka import errors as kafka
from aiokafka.protocol.admin import DescribeConfigsResponse_v0, DescribeConfigsResponse_v1
from aiokafka.protocol.commit import OffsetFetchResponse_v1, OffsetFetchResponse_v3
from aiokafka.protocol.coordination import FindCoordinatorResponse_v0, FindCoordinatorResponse_v1
from aiokafka.protocol.offset import OffsetResponse_v1

from consumer_sdk.adapters.kafka.client.cluster_metadata import NO_EPOCH, Broker, Leader
from consumer_sdk.adapters.kafka.client.lookups import (
    ConfigEntry,
    ConfigResource,
    Coordinator,
    CoordinatorKind,
    FindCoordinator,
    FindCoordinatorResponseV4,
    GroupOffset,
    GroupOffsets,
    ListedOffset,
    ListOffsets,
    ListOffsetsResponseV4,
    OffsetFetch,
    OffsetFetchResponseV5,
    OffsetFetchResponseV9,
    configs_in,
    coordinator_in,
    describe_configs,
    group_offsets_in,
    listed_in,
)

FIRST, SECOND, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
LONGEST = 2**15 - 1


def sent(request: Any, newest: int) -> Any:
    """What a broker reads that knows no version after ``newest``."""
    made = request.prepare({request.API_KEY: (0, newest)})
    assert (request.API_KEY, "tags" in made.SCHEMA.names) == (made.API_KEY, made.FLEXIBLE_VERSION)
    return type(made).decode(made.encode())


def told(response: Any) -> Any:
    """An answer as a broker sends it."""
    return type(response).decode(response.encode())


# -- coordinators -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CoordinatorKind)
@pytest.mark.parametrize("newest, version", [(0, 0), (1, 1), (3, 1), (4, 4), (6, 4)])
def test_coordinator_is_asked_for_by_key_and_kind(
    newest: int, version: int, kind: CoordinatorKind
) -> None:
    """The oldest brokers know coordinators of groups alone."""
    request = FindCoordinator(Coordinator("g", kind))
    if version == 0 and kind is not CoordinatorKind.GROUP:
        with pytest.raises(NotImplementedError, match=f"no coordinator of kind {kind.name}"):
            sent(request, newest)
        return
    found = sent(request, newest)
    assert version == found.API_VERSION
    assert (
        found.to_object()
        == {
            0: {"consumer_group": "g"},
            1: {"coordinator_key": "g", "coordinator_type": int(kind)},
            4: {"key_type": int(kind), "keys": ["g"], "tags": {}},
        }[version]
    )


def test_kinds_have_kafkas_numbers() -> None:
    """A broker reads those."""
    assert [kind.name for kind in CoordinatorKind] == ["GROUP", "TRANSACTION", "SHARE"]
    assert list(map(int, CoordinatorKind)) == [0, 1, 2]
    assert (int(ConfigResource.BROKER), int(ConfigResource.GROUP)) == (4, 32)


def test_key_may_be_as_long_as_kafkas_texts() -> None:
    """A broker closes the connection at a longer one; bytes count, not letters."""
    longest = "é" + "x" * (LONGEST - 2)
    assert sent(FindCoordinator(Coordinator(longest)), 4).keys == [longest]
    with pytest.raises(kafka.InvalidGroupIdError, match="32768 bytes, of 32767"):
        FindCoordinator(Coordinator(longest + "x"))


@pytest.mark.parametrize("version", [0, 1, 4])
@pytest.mark.parametrize(
    "node, code, error",
    [
        (0, 0, None),
        (2, 0, None),
        (-1, 0, kafka.GroupCoordinatorNotAvailableError),
        (-1, 15, kafka.GroupCoordinatorNotAvailableError),
        (-1, 30, kafka.GroupAuthorizationFailedError),
    ],
)
def test_answer_names_the_coordinator_or_why_there_is_none(
    version: int, node: int, code: int, error: type[Exception] | None
) -> None:
    """In every version."""
    answers: dict[int, Any] = {
        0: FindCoordinatorResponse_v0(code, node, "h", 9092),
        1: FindCoordinatorResponse_v1(0, code, "", node, "h", 9092),
        4: FindCoordinatorResponseV4(0, [("g", node, "h", 9092, code, None, {})], {}),
    }
    answer = told(answers[version])
    of = Coordinator("g", CoordinatorKind.SHARE)
    if error is None:
        assert coordinator_in(answer, of) == Broker(node, "h", 9092, None)
        return
    with pytest.raises(error, match="share 'g'"):
        coordinator_in(answer, of)


# -- where a time lies --------------------------------------------------------------------------


@pytest.mark.parametrize("newest, version", [(1, 1), (2, 2), (3, 3), (4, 4), (9, 4)])
@pytest.mark.parametrize("level", [0, 1])
def test_times_are_asked_for_with_what_the_version_has(
    newest: int, version: int, level: int
) -> None:
    """Epochs of leaders from version 4 on, transactions from version 2 on."""
    wanted = {FIRST: (Leader(1, 5), -1), SECOND: (Leader(1, 6), 1000), OTHER: (Leader(1, 7), -2)}
    request = ListOffsets(wanted, level)
    if version == 1 and level:
        with pytest.raises(NotImplementedError, match="knows no transactions"):
            sent(request, newest)
        return
    found = sent(request, newest)
    assert (found.API_VERSION, found.replica_id) == (version, -1)
    assert getattr(found, "isolation_level", 0) == level
    plain = [("t", [(0, -1), (1, 1000)]), ("u", [(0, -2)])]
    with_epochs = [("t", [(0, 5, -1), (1, 6, 1000)]), ("u", [(0, 7, -2)])]
    assert found.topics == (with_epochs if version == 4 else plain)


def test_listed_offset_is_none_where_no_record_is_that_new() -> None:
    """Offset 0 is one; older brokers tell no epochs."""
    new = ListOffsetsResponseV4(0, [("t", [(0, 0, 99, 0, 3), (1, 6, -1, -1, -1)])])
    found = [(FIRST, 0, ListedOffset(0, 3)), (SECOND, 6, None)]
    assert list(listed_in(told(new))) == found
    old = OffsetResponse_v1([("t", [(0, 0, 99, 7)]), ("u", [(0, 3, -1, -1)])])
    found = [(FIRST, 0, ListedOffset(7, NO_EPOCH)), (OTHER, 3, None)]
    assert list(listed_in(told(old))) == found


# -- how something is configured ----------------------------------------------------------------


def test_settings_are_asked_for_by_name_or_all() -> None:
    """Of a broker by its id, or of a group."""
    request = describe_configs(ConfigResource.BROKER, "1", "a", "b")
    assert sent(request, 0).resources == [(4, "1", ["a", "b"])]
    assert sent(describe_configs(ConfigResource.GROUP, "g"), 0).resources == [(32, "g", None)]


def test_settings_have_their_source() -> None:
    """None of a principal that may not read them."""
    entries: list[Any] = [("a", "7", False, 8, False, []), ("b", None, False, 5, True, [])]
    new = DescribeConfigsResponse_v1(0, [(0, "", 32, "g", entries), (29, "no right", 32, "h", [])])
    assert configs_in(told(new)) == {"a": ConfigEntry("7", 8), "b": ConfigEntry(None, 5)}
    old = DescribeConfigsResponse_v0(0, [(0, "", 4, "1", [("a", "7", False, True, False)])])
    assert configs_in(told(old))["a"].value == "7"


@pytest.mark.parametrize(
    "value, number", [("7", 7), ("0", 0), (None, None), ("", None), ("-1", None), ("x", None)]
)
def test_setting_may_be_a_number(value: str | None, number: int | None) -> None:
    """From 0 on."""
    assert ConfigEntry(value, 8).number == number


# -- what groups have committed --------------------------------------------------------------------


@pytest.mark.parametrize("newest, version", [(1, 1), (2, 2), (4, 3), (5, 5), (8, 5), (9, 9)])
def test_commits_are_asked_for_as_a_member_where_the_version_has_one(
    newest: int, version: int
) -> None:
    """Partitions are in order, so that the same request is the same bytes."""
    tps = [OTHER, SECOND, FIRST]
    found = sent(OffsetFetch("g", tps, member_id="me", epoch=4, require_stable=False), newest)
    assert version == found.API_VERSION
    topics = [("t", [0, 1]), ("u", [0])]
    if version == 9:
        assert (found.groups, found.require_stable) == ([("g", "me", 4, topics)], False)
        nobody = sent(OffsetFetch("g", tps), newest)
        assert (nobody.groups, nobody.require_stable) == ([("g", None, -1, topics)], True)
    else:
        assert (found.consumer_group, found.topics) == ("g", topics)


ROWS: list[Any] = [
    (5, 2, "text", 0),
    (-1, -1, "", 0),
    (0, -1, None, 0),
    (-1, -1, "", 3),
    (-1, -1, "", 100),
    (-1, -1, "", 29),
]
"""Offset, epoch, metadata and code of each partition."""


@pytest.mark.parametrize("version", [1, 3, 5, 9])
@pytest.mark.parametrize("error", [0, 16])
def test_commits_are_read_in_every_version(version: int, error: int) -> None:
    """Nothing is committed where there is no such partition; any other code is an error of it alone."""
    rows: list[Any] = [(n, *row) for n, row in enumerate(ROWS)]
    plain: list[Any] = [("t", [(n, offset, text, code) for n, offset, _, text, code in rows])]
    answers: dict[int, Any] = {
        1: OffsetFetchResponse_v1(plain),
        3: OffsetFetchResponse_v3(0, plain, error),
        5: OffsetFetchResponseV5(0, [("t", rows)], error),
        9: OffsetFetchResponseV9(0, [("g", [("t", rows)], error)], {}),
    }
    answer = told(answers[version])
    tps = [TopicPartition("t", n) for n in range(len(rows))]
    found = group_offsets_in(answer, [*tps, OTHER])
    epoch = 2 if version >= 5 else NO_EPOCH
    offsets = {tps[0]: GroupOffset(5, "text", epoch), tps[2]: GroupOffset(0, "", NO_EPOCH)}
    nothing = dict.fromkeys([*tps, OTHER])
    assert found == GroupOffsets(error if version > 1 else 0, {**nothing, **offsets}, {tps[5]: 29})


@pytest.mark.parametrize(
    "found, error",
    [
        (GroupOffsets(0, {FIRST: None}, {}), None),
        (GroupOffsets(30, {}, {}), kafka.GroupAuthorizationFailedError),
        (GroupOffsets(0, {}, {FIRST: 29}), kafka.TopicAuthorizationFailedError),
    ],
)
def test_answer_that_does_not_say_all_is_an_error(
    found: GroupOffsets, error: type[Exception] | None
) -> None:
    """Of the group as a whole, or of a partition."""
    if error is None:
        found.check("g")
        return
    with pytest.raises(error, match="'g'" if found.error else r"t\[0\]"):
        found.check("g")
