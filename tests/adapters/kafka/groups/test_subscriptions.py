"""Subscriptions and assignments as bytes, beside Java's and aiokafka's."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyAssignorUserDataV1,
    StickyPartitionAssignor,
)
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.kafka.groups.member import TopicPartition
from consumer_sdk.adapters.kafka.groups.subscriptions import (
    Assignment,
    Claims,
    Subscription,
    UnreadableMemberError,
    read_assignment,
    read_claims,
    read_generation,
    read_subscription,
    write_assignment,
    write_claims,
    write_generation,
    write_subscription,
)
from tests.adapters.kafka.groups.java_groups import BYTES, partitions, recorded

TPS = st.frozensets(
    st.builds(TopicPartition, st.sampled_from(["a", "orders.eu", "z"]), st.integers(0, 99))
)
USER_DATA = st.none() | st.binary(max_size=9)
SUBSCRIPTIONS = st.builds(
    Subscription,
    topics=st.frozensets(st.text(max_size=5)),
    user_data=USER_DATA,
    owned=TPS,
    generation=st.integers(-1, 2**31 - 1),
    rack=st.none() | st.text(max_size=5),
)


def written(question: str) -> bytes:
    """What this package writes for a line that Java was asked."""
    kind, *fields = question.split("\t")
    if kind == "claims":
        claims = Claims(partitions(fields[1]), int(fields[2]))
        is_sticky = fields[0] == "sticky"
        return write_claims(claims) if is_sticky else write_generation(claims.generation)
    version, first, user_data, *rest = fields
    data = None if user_data == "-" else bytes.fromhex(user_data)
    if kind == "assignment":
        return write_assignment(Assignment(partitions(first), data), int(version))
    owned, generation, rack = rest
    topics = frozenset(() if first == "-" else first.split(","))
    rack_id = None if rack == "-" else rack
    sub = Subscription(topics, data, partitions(owned), int(generation), rack_id)
    return write_subscription(sub, int(version))


@pytest.mark.parametrize("question", BYTES)
def test_bytes_are_those_of_java(question: str) -> None:
    """Version by version."""
    assert written(question).hex() == recorded()[question]


@given(SUBSCRIPTIONS, st.integers(3, 9), st.binary(max_size=9))
def test_subscription_is_read_as_it_was_written(
    sub: Subscription, version: int, more: bytes
) -> None:
    """A version of the future has more fields, which are left."""
    data = version.to_bytes(2, "big") + write_subscription(sub)[2:] + more
    assert read_subscription(data, "m") == sub


@given(SUBSCRIPTIONS)
def test_older_version_has_fewer_fields(sub: Subscription) -> None:
    """What it does not have counts as not said."""
    topics, data, owned = sub.topics, sub.user_data, sub.owned
    assert read_subscription(write_subscription(sub, 0), "m") == Subscription(topics, data)
    assert read_subscription(write_subscription(sub, 1), "m") == Subscription(topics, data, owned)
    assert read_subscription(write_subscription(sub, 2), "m").generation == sub.generation


def test_rack_comes_with_version_three() -> None:
    """That is the version which is written, of assignments too."""
    sub = Subscription(frozenset({"a"}), rack="r")
    assert read_subscription(write_subscription(sub), "m").rack == "r"
    assert read_subscription(write_subscription(sub, 2), "m").rack is None
    assert write_subscription(sub) == write_subscription(sub, 3)
    assert write_assignment(Assignment()) == write_assignment(Assignment(), 3)


@given(st.builds(Assignment, TPS, USER_DATA), st.integers(0, 9), st.binary(max_size=9))
def test_assignment_is_read_as_it_was_written(
    assignment: Assignment, version: int, more: bytes
) -> None:
    """Whatever its version."""
    assert read_assignment(write_assignment(assignment, version) + more, "m") == assignment


def test_broken_assignment_is_told_with_its_member() -> None:
    """It is the leader that has sent it."""
    match = (
        "group leader's assignment for member 'm-7' cannot be read, at byte 0: its version is -1"
    )
    with pytest.raises(UnreadableMemberError, match=match):
        read_assignment(b"\xff\xff\0\0\0\0\xff\xff\xff\xff", "m-7")


def test_no_bytes_are_an_empty_assignment() -> None:
    """A leader that knows nothing of a member gives it nothing."""
    assert read_assignment(b"", "m") == Assignment()


def test_null_lists_count_as_empty() -> None:
    """Some clients write them."""
    assert read_subscription(b"\0\0\xff\xff\xff\xff\xff\xff\xff\xff", "m") == Subscription(
        frozenset()
    )


@given(SUBSCRIPTIONS, st.data())
def test_subscription_that_is_cut_off_is_named_with_its_member(
    sub: Subscription, data: st.DataObject
) -> None:
    """However much of it there is."""
    whole = write_subscription(sub)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(UnreadableMemberError, match="subscription of member 'm-7'"):
        read_subscription(cut, "m-7")


@pytest.mark.parametrize(
    "broken, at, why",
    [
        (b"\xff\xfe", 0, "its version is -2"),
        (b"\0", 0, "2 bytes should follow, of 1 in all"),
        (b"\0\0\x7f\xff\xff\xff", 2, "it should have 2147483647 elements"),
        (b"\0\0\0\0\0\2\0\0\0", 2, "it should have 2 elements"),
        (b"\0\0\0\0\0\1\0\2\xff\xfe", 8, "a text is not UTF-8"),
        (b"\0\0\0\0\0\1\xff\xff", 6, "the name of a topic is missing"),
        (b"\0\0\0\0\0\1\xff\xfe", 8, "-2 bytes should follow"),
        (b"\0\0\0\0\0\0\xff\xff\xff\xfe", 10, "-2 bytes should follow"),
    ],
)
def test_broken_bytes_are_told_with_their_place(broken: bytes, at: int, why: str) -> None:
    """A client that writes something else into the group can be found by that."""
    with pytest.raises(UnreadableMemberError, match=f"cannot be read, at byte {at}: {why}"):
        read_subscription(broken, "m")


@given(st.binary(max_size=60))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    """They are read, or refused."""
    for read in (read_subscription, read_assignment):
        try:
            read(data, "m")
        except UnreadableMemberError:
            continue
    read_claims(data)
    read_generation(data)


@given(TPS, st.integers(-1, 99))
def test_sticky_user_data_is_that_of_aiokafka(tps: frozenset[TopicPartition], gen: int) -> None:
    """In both directions."""
    ours = write_claims(Claims(tps, gen))
    theirs = StickyAssignorUserDataV1.decode(ours)
    found = {TopicPartition(topic, n) for topic, ns in theirs.previous_assignment for n in ns}
    assert found == set(tps)
    assert theirs.generation == gen
    metadata = StickyPartitionAssignor._metadata(["a"], sorted(tps), gen)
    assert read_claims(metadata.user_data) == Claims(tps, gen)


@given(SUBSCRIPTIONS, st.builds(Assignment, TPS, USER_DATA))
def test_aiokafka_reads_it(sub: Subscription, assignment: Assignment) -> None:
    """It takes version 0's fields, and leaves the others."""
    metadata = ConsumerProtocolMemberMetadata.decode(write_subscription(sub))
    assert (metadata.subscription, metadata.user_data) == (sorted(sub.topics), sub.user_data)
    theirs = ConsumerProtocolMemberAssignment.decode(write_assignment(assignment))
    assert {TopicPartition(*tp) for tp in theirs.partitions()} == assignment.partitions


def test_claims_without_generation_are_read() -> None:
    """Java's first version of them; what cannot be read claims nothing."""
    claims = Claims(frozenset({TopicPartition("a", 1)}), 5)
    data = write_claims(claims)
    assert read_claims(data[:-4]) == Claims(claims.partitions, -1)
    assert read_claims(data[:-1]) == read_claims(None) == read_claims(b"") == Claims()


def test_generation_is_read_from_both_forms_of_user_data() -> None:
    """Java writes a number, librdkafka what ``sticky`` has."""
    assert read_generation(write_generation(7)) == 7
    assert read_generation(write_claims(Claims(frozenset({TopicPartition("a", 1)}), 8))) == 8
    assert read_generation(None) == -1
    assert read_generation(write_generation(-1)) == -1  # not above all others
