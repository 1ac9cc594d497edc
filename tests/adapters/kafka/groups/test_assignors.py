"""The assignors: Java's results where they are promised, and else what is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.kafka.groups.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    GroupMember,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from consumer_sdk.adapters.kafka.groups.member import TopicPartition
from consumer_sdk.adapters.kafka.groups.subscriptions import (
    Claims,
    Subscription,
    read_claims,
    write_claims,
    write_generation,
)
from tests.adapters.kafka.groups.java_groups import (
    NAMES,
    Case,
    ask_java,
    partitions,
    random_case,
    recorded,
)

ASSIGNORS: dict[str, Assignor] = {
    each.name: each
    for each in (
        RangeAssignor(),
        RoundRobinAssignor(),
        StickyAssignor(),
        CooperativeStickyAssignor(),
    )
}
Shares = Mapping[str, frozenset[TopicPartition]]

CASES = st.builds(
    random_case,
    st.builds(random.Random, st.integers(0, 2**32)),
    st.sampled_from(["sticky", "cooperative-sticky"]),
)


def shares_of(case: Case) -> dict[str, frozenset[TopicPartition]]:
    """What our assignor gives."""
    found = ASSIGNORS[case.name].assign(case.group(), case.counts)
    return {member: each.partitions for member, each in found.items()}


def java_shares(answer: str) -> dict[str, frozenset[TopicPartition]]:
    """What Java's gave."""
    parts = (each.rpartition("=") for each in answer.split("\t"))
    return {member: partitions(tps) for member, _, tps in parts}


def kept(case: Case, shares: Shares) -> int:
    """How many partitions stay where they were."""
    return sum(len(shares[m] & claims.partitions) for m, (_, _, claims) in case.members.items())


def has_equal_topics(case: Case) -> bool:
    """Whether each member wants the same."""
    return len({topics for _, topics, _ in case.members.values()}) == 1


def is_balanced(case: Case, shares: Shares) -> bool:
    """KIP-54: who has two more than another has nothing that the other could take."""
    wanted = {member: topics for member, (_, topics, _) in case.members.items()}
    return not any(
        len(shares[rich]) > len(shares[poor]) + 1
        and any(tp.topic in wanted[poor] for tp in shares[rich])
        for rich in shares
        for poor in shares
    )


def compare(case: Case, answer: str) -> None:
    """Ours beside Java's."""
    ours, java = shares_of(case), java_shares(answer)
    if case.name in ("range", "roundrobin"):
        assert ours == java, case.line()
        return
    if has_equal_topics(case):
        assert kept(case, ours) == kept(case, java), case.line()
        if case.name == "sticky":
            assert Counter(map(len, ours.values())) == Counter(map(len, java.values()))


@pytest.mark.parametrize("line", [q for q in recorded() if q.startswith("assign\t")])
def test_recorded_group_is_shared_out_as_by_java(line: str) -> None:
    """The same partitions for ``range`` and ``roundrobin``; as many that stay for the sticky ones."""
    assert Case.read(line).line() == line
    compare(Case.read(line), recorded()[line])


@pytest.mark.campaign
def test_random_groups_are_shared_out_as_by_java(tmp_path: Path) -> None:
    """Java is asked now."""
    dice = random.Random()
    cases = [random_case(dice, name) for name in NAMES for _ in range(1500)]
    answers = ask_java([case.line() for case in cases], tmp_path)
    for case, answer in zip(cases, answers, strict=True):
        compare(case, answer)


@given(CASES)
def test_each_partition_has_one_member_that_wants_it(case: Case) -> None:
    """But for those that cooperative members have to give up first."""
    shares = shares_of(case)
    given_out = Counter(tp for tps in shares.values() for tp in tps)
    wanted = {member: topics for member, (_, topics, _) in case.members.items()}
    assert set(given_out.values()) <= {1}
    assert all(tp.topic in wanted[member] for member, tps in shares.items() for tp in tps)
    claimed = {tp for _, _, claims in case.members.values() for tp in claims.partitions}
    withheld = claimed if case.name == "cooperative-sticky" else set()
    for topic in frozenset[str]().union(*wanted.values()):
        for number in range(case.counts[topic]):
            tp = TopicPartition(topic, number)
            assert tp in given_out or tp in withheld


def settle(case: Case) -> tuple[Case, int]:
    """Lets the members of a group join until nothing changes: the last group, and the rounds."""
    for rounds in range(9):
        shares = shares_of(case)
        generation = 10 + rounds
        members = {
            member: (instance, topics, Claims(shares[member], generation))
            for member, (instance, topics, _) in case.members.items()
        }
        if {m: c.partitions for m, (_, _, c) in case.members.items()} == shares:
            return case, rounds
        case = Case(case.name, case.counts, members)
    raise AssertionError(f"it does not come to rest: {case.line()}")


@given(CASES)
def test_group_comes_to_rest_in_balance(case: Case) -> None:
    """A second assignment of a cooperative group gives out what the first one withheld; then nothing moves."""
    last, rounds = settle(case)
    assert is_balanced(last, shares_of(last))
    assert rounds <= 3


@given(CASES)
def test_as_many_stay_as_balance_allows(case: Case) -> None:
    """With equal topics: each member keeps its even share, and what is over goes to who has more already."""
    if not has_equal_topics(case):
        return
    total = sum(case.counts[topic] for topic in next(iter(case.members.values()))[1])
    least, more = divmod(total, len(case.members))
    topics = next(iter(case.members.values()))[1]
    had = [
        sum(tp.topic in topics for tp in claims.partitions)
        for _, _, claims in case.members.values()
    ]
    most = sum(min(n, least) for n in had) + min(more, sum(n > least for n in had))
    assert kept(case, shares_of(case)) == most


@given(CASES)
def test_cooperative_partition_that_moves_is_left_out(case: Case) -> None:
    """Nobody gets what another still holds."""
    shares = shares_of(Case("cooperative-sticky", case.counts, case.members))
    for member, tps in shares.items():
        for other, (_, _, claims) in case.members.items():
            assert other == member or not tps & claims.partitions


def member(
    topics: str, owned: str = "-", generation: int = -1, data: bytes | None = None
) -> GroupMember:
    """A cooperative member."""
    sub = Subscription(frozenset(topics.split(",")), data, partitions(owned), generation)
    return GroupMember(sub)


def cooperate(members: Mapping[str, GroupMember], **counts: int) -> dict[str, str]:
    """Who gets what."""
    found = CooperativeStickyAssignor().assign(members, counts)
    return {
        name: ",".join(f"{tp.topic}:{tp.partition}" for tp in sorted(each.partitions))
        for name, each in found.items()
    }


def test_claim_of_the_newer_generation_counts() -> None:
    """A member that was away does not take back what others have by now (KIP-792)."""
    old, new = member("t", "t:0,t:1", 3), member("t", "t:0,t:1", 4)
    assert cooperate({"a": old, "b": new}, t=2) == {"a": "", "b": "t:0"}


def test_generation_in_the_user_data_counts_where_the_subscription_tells_none() -> None:
    """Librdkafka and old Java have it there alone; a generation of the subscription, the first one too, comes first."""
    old, new = (member("t", "t:0,t:1", -1, write_generation(number)) for number in (3, 4))
    assert cooperate({"a": old, "b": new}, t=2) == {"a": "", "b": "t:0"}
    first, none = member("t", "t:0,t:1", 0, write_generation(-1)), member("t", "t:0,t:1")
    assert cooperate({"a": first, "b": none}, t=2) == {"a": "t:0", "b": ""}


def test_two_claims_of_one_generation_are_both_given_up() -> None:
    """One of them must be wrong, and nobody knows which."""
    both = {"a": member("t", "t:0", 4), "b": member("t", "t:0", 4)}
    assert cooperate(both, t=1) == {"a": "", "b": ""}


def test_claim_without_generation_counts_if_there_is_no_other() -> None:
    """Clients of before KIP-792 tell none."""
    assert cooperate({"a": member("t", "t:1"), "b": member("t")}, t=2) == {"a": "t:1", "b": "t:0"}


def test_claim_of_what_is_no_longer_wanted_is_withheld_once() -> None:
    """Its holder may still handle it."""
    members = {"a": member("u", "t:0", 4), "b": member("t,u")}
    assert cooperate(members, t=1, u=1) == {"a": "u:0", "b": ""}


def test_topic_that_is_gone_is_not_given_out() -> None:
    """Whoever claims it."""
    for name in NAMES:
        group = {"a": member("t,gone", "gone:0,t:0", 4)}
        found = ASSIGNORS[name].assign(group, {"t": 1})
        assert found["a"].partitions == partitions("t:0")


def test_static_members_come_first() -> None:
    """In the order of their instances, which a restart keeps; member ids are given anew."""
    sub = Subscription(frozenset({"t"}))
    group = {"a": GroupMember(sub), "z": GroupMember(sub, "i1"), "y": GroupMember(sub, "i2")}
    for assignor in (RangeAssignor(), RoundRobinAssignor()):
        found = assignor.assign(group, {"t": 3})
        assert [min(found[name].partitions).partition for name in "zya"] == [0, 1, 2]


def test_sticky_member_tells_its_last_assignment() -> None:
    """It has given all up by then; a new one tells nothing."""
    held, last = Subscription(frozenset({"t"})), Claims(partitions("t:0"), 4)
    said = StickyAssignor().subscription(held, last)
    assert read_claims(said.user_data) == last
    assert StickyAssignor().subscription(held, Claims()).user_data is None


def stuck(
    counts: dict[str, int], **members: tuple[str, str]
) -> dict[str, frozenset[TopicPartition]]:
    """Who gets what of sticky members; each one's topics, and what it had."""
    group = {
        name: GroupMember(
            Subscription(frozenset(topics.split(",")), write_claims(Claims(partitions(had), 1)))
        )
        for name, (topics, had) in members.items()
    }
    found = StickyAssignor().assign(group, counts)
    return {name: each.partitions for name, each in found.items()}


def test_partitions_move_until_no_move_is_left() -> None:
    """A member that was given something may have too much by then, for one that could take nothing before."""
    found = stuck({"x": 1, "y": 5}, a=("x", "-"), b=("x,y", "x:0"), c=("y", "y:0,y:1,y:2,y:3,y:4"))
    assert {name: len(each) for name, each in found.items()} == {"a": 1, "b": 2, "c": 3}


def test_what_was_just_given_out_moves_before_what_stays() -> None:
    """A partition that has moved costs its member what it knows of the records."""
    had = "z:0,z:1,z:2,z:3,z:4,z:5"
    few = ("z", "-")
    found = stuck({"x": 4, "z": 6}, a=("x,z", had), b=("x", "x:0"), c=few, d=few, e=few)
    assert found["b"] == partitions("x:0,x:1,x:2")
    assert (TopicPartition("x", 3) in found["a"], len(found["a"])) == (True, 2)
    found = stuck({"x": 1, "y": 4}, a=("y", "y:2"), b=("x,y", "x:0,y:0"), c=("x", "-"))
    assert found["c"] == partitions("x:0")
    assert (found["a"] >= partitions("y:2"), found["b"] >= partitions("y:0")) == (True, True)


def test_member_takes_back_what_it_had_before_anything_else() -> None:
    """It was given to another one only for a moment, while the assignment was made."""
    had = {"a": "x:0", "b": "x:1,x:2,x:3,x:4,y:1,z:0,z:1", "c": "-", "d": "-"}
    topics = {"a": "x,z", "b": "x,y,z", "c": "y,z", "d": "y,z"}
    members = {name: (topics[name], had[name]) for name in had}
    found = stuck({"x": 5, "y": 3, "z": 2}, **members)
    stayed = sum(len(found[name] & partitions(had[name])) for name in had)
    assert (stayed, sorted(map(len, found.values()))) == (4, [2, 2, 3, 3])


def test_large_group_of_different_topics_is_levelled() -> None:
    """60 members, each with some of 40 topics of 50 partitions."""
    dice = random.Random(1)
    topics = [f"t{n}" for n in range(40)]
    members = {
        f"m{n}": GroupMember(
            Subscription(frozenset(dice.sample(topics, 12)), write_claims(Claims()))
        )
        for n in range(60)
    }
    found = StickyAssignor().assign(members, dict.fromkeys(topics, 50))
    assert sum(len(each.partitions) for each in found.values()) == 2000
