"""Shares of partitions: even, the same for everybody, and with no move that need not be."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.leases.balance import balance, moves
from consumer_sdk.records.leases import Lease, LeaseView, is_readable, limit_of, named, weight_of

MEMBERS = st.sets(st.sampled_from("abcde"), max_size=5).map(frozenset)
NAMES = st.none() | st.sampled_from("abcdefg")  # two of them are never alive
LEASES = st.lists(
    st.builds(
        Lease,
        parents=st.lists(st.integers(0, 30).map(str), max_size=2).map(tuple),
        owner=NAMES,
        fence=st.integers(0, 9),
        wanted_by=NAMES,
        ended=st.booleans(),
    ),
    max_size=20,
).map(lambda leases: {str(number): lease for number, lease in enumerate(leases)})


def free(count: int) -> dict[str, Lease]:
    """Partitions that nobody has."""
    return {str(number): Lease() for number in range(count)}


def owned(**counts: int) -> dict[str, Lease]:
    """Partitions of these owners, as many as they say."""
    owners = [owner for owner, count in counts.items() for _ in range(count)]
    return {f"{number:02}": Lease(owner=owner, fence=1) for number, owner in enumerate(owners)}


def settled(leases: Mapping[str, Lease], targets: Mapping[str, str]) -> dict[str, Lease]:
    """All as the balance wants it."""
    return {p: replace(lease, owner=targets.get(p, lease.owner)) for p, lease in leases.items()}


def fewest_moves(members: frozenset[str], leases: Mapping[str, Lease]) -> int:
    """By trying who gets the larger shares: how many have to leave an owner who is alive."""
    readable = [lease for p, lease in leases.items() if is_readable(p, leases)]
    counts = Counter(lease.owner for lease in readable if lease.owner in members)
    low, extra = divmod(len(readable), len(members))
    return min(
        sum(max(0, counts[m] - low - (m in larger)) for m in members)
        for larger in combinations(sorted(members), extra)
    )


def work_through(members: Sequence[str], leases: dict[str, Lease], seed: int) -> Counter[str]:
    """Lets members act in a random order until nothing moves; counts each partition's owners."""
    chance, tenures, fence = random.Random(seed), Counter[str](), 9
    for _ in range(200):
        me = chance.choice(members)
        todo = moves(LeaseView(me, frozenset(members), leases, _held(me, leases)))
        for partition in todo.take:
            fence += 1
            leases[partition] = Lease(owner=me, fence=fence)
            tenures[partition] += 1
        for partition in todo.unwant:
            leases[partition] = replace(leases[partition], wanted_by=None)
        for partition in todo.want:
            leases[partition] = replace(leases[partition], wanted_by=me)
        for partition in todo.hand_over:
            leases[partition] = replace(leases[partition], owner=None)
    return tenures


def _held(me: str, leases: Mapping[str, Lease]) -> dict[str, int]:
    return {p: lease.fence for p, lease in leases.items() if lease.owner == me}


@given(MEMBERS, LEASES)
def test_shares_differ_by_one_at_most(members: frozenset[str], leases: dict[str, Lease]) -> None:
    """Every partition that can be read has a member who lives, and nobody has two more."""
    targets = balance(members, leases)
    if not members:
        assert targets == {}
        return
    assert targets.keys() == {p for p in leases if is_readable(p, leases)}
    counts = [Counter(targets.values())[member] for member in members]
    assert targets.keys() == set() or set(targets.values()) <= members
    assert max(counts) - min(counts) <= 1


@given(MEMBERS, LEASES)
def test_nothing_moves_that_need_not(members: frozenset[str], leases: dict[str, Lease]) -> None:
    """As few leave a living owner as any even distribution asks for."""
    if members:
        targets = balance(members, leases)
        moved = [p for p, m in targets.items() if leases[p].owner in members - {m}]
        assert len(moved) == fewest_moves(members, leases)


@given(MEMBERS, LEASES)
def test_what_is_settled_stays(members: frozenset[str], leases: dict[str, Lease]) -> None:
    """Run again on its own result it says the same, whatever marks are still there."""
    targets = balance(members, leases)
    assert balance(members, settled(leases, targets)) == targets


@given(MEMBERS, LEASES, st.randoms())
def test_everybody_comes_to_the_same(
    members: frozenset[str], leases: dict[str, Lease], chance: random.Random
) -> None:
    """The order in which leases are listed means nothing."""
    shuffled = list(leases.items())
    chance.shuffle(shuffled)
    assert balance(members, dict(shuffled)) == balance(members, leases)


@given(MEMBERS, LEASES)
def test_children_wait_for_all_their_parents(
    members: frozenset[str], leases: dict[str, Lease]
) -> None:
    """Nobody gets a partition with a parent that has not ended, or one that has ended itself."""
    for partition in balance(members, leases):
        assert not leases[partition].ended
        assert all(leases[p].ended for p in leases[partition].parents if p in leases)


def test_child_whose_parent_is_unknown_can_be_read() -> None:
    """The broker stores that parent no longer: nothing is left to wait for."""
    leases = {"child": Lease(parents=("gone",))}
    assert balance(set("a"), leases) == {"child": "a"}


def test_child_of_a_merge_waits_for_both() -> None:
    """One parent's end is not enough."""
    leases = {"x": Lease(ended=True), "y": Lease(), "child": Lease(parents=("x", "y"))}
    assert balance(set("a"), leases) == {"y": "a"}
    leases["y"] = Lease(ended=True)
    assert balance(set("a"), leases) == {"child": "a"}


def test_few_partitions_and_many_members_do_not_move() -> None:
    """Those who have one keep it, however many come and envy them."""
    leases = owned(d=1, e=1)
    for members in ("de", "abcde", "deabcfgh"):
        assert balance(set(members), leases) == {"00": "d", "01": "e"}


def test_newcomer_gets_its_share_and_no_more_moves() -> None:
    """Three of nine go to the third member; the other six stay where they are."""
    targets = balance(set("abc"), owned(a=5, b=4))
    assert Counter(targets.values()) == {"a": 3, "b": 3, "c": 3}
    assert sum(owned(a=5, b=4)[p].owner != m for p, m in targets.items()) == 3


def test_wanted_partition_goes_first_and_to_who_waits() -> None:
    """A handover under way is not turned round by another newcomer."""
    leases = owned(a=4)
    leases["00"] = replace(leases["00"], wanted_by="c")
    targets = balance(set("abc"), leases)
    assert targets["00"] == "c"
    released = {**leases, "00": replace(leases["00"], owner=None)}
    assert balance(set("abc"), released)["00"] == "c"


@given(st.integers(0, 12), st.sampled_from(["a", "ab", "abcde"]), st.integers(0, 10**6))
def test_free_partitions_are_taken_once(count: int, members: str, seed: int) -> None:
    """Members that act one after the other, in any order, never take anything from each other."""
    leases = free(count)
    tenures = work_through(members, leases, seed)
    assert all(tenures[p] == 1 for p in leases)
    counts = Counter(lease.owner for lease in leases.values())
    assert max(counts[m] for m in members) - min(counts[m] for m in members) <= 1


@given(LEASES, st.integers(0, 10**6))
def test_handovers_end_in_balance_and_move_each_partition_once(
    leases: dict[str, Lease], seed: int
) -> None:
    """From any mess, old marks included: nothing changes hands twice, and then all is quiet."""
    members = "abc"
    readable = {p: lease for p, lease in leases.items() if is_readable(p, leases)}
    tenures = work_through(members, readable, seed)
    assert max(tenures.values(), default=0) <= 1
    assert {p: lease.owner for p, lease in readable.items()} == balance(set(members), readable)
    marks = {lease.wanted_by for lease in readable.values() if lease.wanted_by != lease.owner}
    assert not marks & set(members)


def test_moves_of_a_member_that_has_not_joined_are_none() -> None:
    """Who is not alive for the others takes nothing."""
    todo = moves(LeaseView("z", frozenset("a"), owned(z=1, a=1)))
    assert (todo.take, todo.want, todo.hand_over) == ({}, [], [])


def test_owner_in_name_only_takes_its_partition_again() -> None:
    """A grant of which it never heard, or one that it gave up, is taken under a new fence."""
    leases = owned(a=1)
    assert moves(LeaseView("a", frozenset("a"), leases)).take == {"00": 1}
    assert moves(LeaseView("a", frozenset("a"), leases, {"00": 1})).take == {}


def test_overdue_partition_is_taken_from_its_owner() -> None:
    """It is wanted first, and taken when the owner did not let go."""
    leases = owned(a=2)
    view = LeaseView("b", frozenset("ab"), leases)
    assert (moves(view).take, moves(view).want) == ({}, ["01"])
    leases["01"] = replace(leases["01"], wanted_by="b")
    assert (moves(view).take, moves(view).want) == ({}, [])
    assert moves(LeaseView("a", frozenset("ab"), leases)).hand_over == ["01"]
    assert moves(replace(view, overdue=frozenset({"01"}))).take == {"01": 1}


def test_mark_on_what_is_its_share_no_longer_is_taken_back() -> None:
    """The shares have shifted before the owner looked; a mark of another member stays."""
    leases = {"0": Lease(owner="a", fence=1, wanted_by="b"), "1": Lease(owner="b", fence=2)}
    view = LeaseView("b", frozenset("ab"), leases, {"1": 2})
    assert (moves(view).want, moves(view).unwant) == ([], ["0"])
    leases["0"] = replace(leases["0"], wanted_by="c")
    assert moves(view).unwant == []


def test_mark_of_a_dead_member_moves_nothing() -> None:
    """Who wanted it has died: the owner keeps it."""
    leases = {"0": Lease(owner="a", fence=1, wanted_by="dead"), "1": Lease(owner="b", fence=2)}
    assert moves(LeaseView("a", frozenset("ab"), leases, {"0": 1})).hand_over == []


@given(st.lists(st.none() | st.integers(1, 5), min_size=1, max_size=5), LEASES)
def test_nobody_gets_more_than_its_limit(
    limits: list[int | None], leases: dict[str, Lease]
) -> None:
    """The others share the rest as evenly as before; what is above all limits is nobody's."""
    members = {named(name, most) for name, most in zip("abcde", limits, strict=False)}
    targets = balance(members, leases)
    counts = {member: Counter(targets.values())[member] for member in members}
    assert all(count <= limit_of(member) for member, count in counts.items())
    readable = sum(is_readable(p, leases) for p in leases)
    assert len(targets) == min(readable, sum(map(limit_of, members)))
    with_room = [count for member, count in counts.items() if count < limit_of(member)]
    assert all(max(counts.values()) - count <= 1 for count in with_room)
    assert balance(members, settled(leases, targets)) == targets


SIZES = st.lists(
    st.tuples(st.none() | st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=5
)
"""The limit and the weight of each member."""


@given(SIZES, LEASES)
def test_shares_are_as_the_weights(
    sizes: list[tuple[int | None, int]], leases: dict[str, Lease]
) -> None:
    """Rounded up or down, of what the limits of others leave; run again it says the same."""
    members = {named(name, *size) for name, size in zip("abcde", sizes, strict=False)}
    targets = balance(members, leases)
    counts = Counter(targets.values())
    assert all(counts[member] <= limit_of(member) for member in members)
    free = [member for member in members if counts[member] < limit_of(member)]
    left = sum(counts[m] for m in free)
    total = sum(map(weight_of, free))
    # Who has just as many as its limit may have been rounded up to it: one more or less for the others.
    slack = 1 if len(free) == len(members) else len(members)
    assert all(abs(counts[m] - left * weight_of(m) / total) < slack for m in free)
    assert balance(members, settled(leases, targets)) == targets


@given(st.lists(st.integers(1, 4), min_size=2, max_size=4), st.integers(0, 20), st.randoms())
def test_weighted_shares_end_in_balance(
    weights: list[int], count: int, chance: random.Random
) -> None:
    """Members that act one after the other come to it, and each partition moves at most once."""
    members = [named(name, None, weight) for name, weight in zip("abcd", weights, strict=False)]
    leases = {f"{n:02}": Lease(owner=chance.choice(members), fence=1) for n in range(count)}
    tenures = work_through(members, leases, chance.randrange(10**6))
    assert max(tenures.values(), default=0) <= 1
    assert {p: lease.owner for p, lease in leases.items()} == balance({*members}, leases)


def test_member_of_twice_the_weight_gets_twice_the_partitions() -> None:
    """Two of three; an odd one stays where it is, else it goes to who is further from its share."""
    heavy = named("a", None, 2)
    assert Counter(balance({heavy, "b"}, free(9)).values()) == {heavy: 6, "b": 3}
    assert balance({heavy, "b"}, free(1)) == {"0": heavy}
    assert balance({heavy, "b"}, owned(b=1)) == {"00": "b"}
    assert balance({heavy, "b"}, free(6), frozenset({heavy})).keys() == free(6).keys()


def test_weight_is_part_of_a_members_name() -> None:
    """Beside a limit, which stands where members of an older version look for it."""
    name = named("host/4711", 3, 2)
    assert name == "host/4711;weight=2;most=3"
    assert (limit_of(name), weight_of(name)) == (3, 2)
    assert [weight_of(n) for n in ("a", "a;weight=", "a;weight=0", "a;most=2")] == [1] * 4


def test_limit_is_part_of_a_members_name() -> None:
    """So that all others know it; a name of somebody else's making has none."""
    assert limit_of(named("host/4711", 3)) == 3
    assert named("host/4711", None) == "host/4711"
    assert [limit_of(name) for name in ("a", "a;most=", "a;most=x", "a;most=0")] == [math.inf] * 4


def test_partitions_above_all_limits_are_told() -> None:
    """They stay where they are, and nobody asks for them."""
    mine, theirs = named("a", 1), named("b", 2)
    leases = free(5)
    todo = moves(LeaseView(mine, frozenset({mine, theirs}), leases))
    assert (len(todo.take), todo.want, todo.hand_over, len(todo.unread)) == (1, [], [], 2)
    assert moves(LeaseView("c", frozenset({mine, theirs, "c"}), leases)).unread == []


@given(MEMBERS, LEASES, MEMBERS)
def test_what_nobody_owns_goes_to_no_silent_member(
    members: frozenset[str], leases: dict[str, Lease], silent: frozenset[str]
) -> None:
    """Unless all are silent; what a living member owns moves as before."""
    targets, before = balance(members, leases, silent), balance(members, leases)
    assert targets.keys() == before.keys()
    for partition, member in targets.items():
        if leases[partition].owner in members:
            assert member == before[partition]
        else:
            assert member not in silent or members <= silent
