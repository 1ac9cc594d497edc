"""Branches in the hands of a user: children, joins, blocks, and what is refused."""

from __future__ import annotations

import copy
import pickle

import pytest

from consumer_sdk import Branch, ConfigurationError, HandlerError, Reject, Retry
from consumer_sdk.records.tokens import Anchor, decode_token
from tests.trackers.grove import Grove


def test_tree_is_done_when_every_branch_is_acked_in_any_order() -> None:
    """Children before parents, grandchildren last or first."""
    grove = Grove()
    with grove.tree() as tree:
        one, two = tree.branch(), tree.branch()
        deeper = one.branch()

    assert [deeper.ack(), one.ack(), two.is_settled] == [True, True, False]
    assert grove.ends == {}
    assert two.ack()
    assert grove.ends == {0: "finished"}


def test_branch_acked_before_its_tree_is_left_does_not_end_it() -> None:
    """Kinesis trap 30, ack before init: the tree waits for its own first branch."""
    grove = Grove()
    with grove.tree() as tree:
        tree.branch().ack()
        assert grove.ends == {}

    assert grove.ends == {0: "finished"}


def test_branch_failed_before_its_tree_is_left_ends_it_at_once() -> None:
    """Kinesis trap 30, fail before init: nothing is waited for, and leaving is no late ack."""
    grove = Grove()
    with grove.tree() as tree:
        assert tree.branch().fail("bad")
        assert grove.ends == {0: "bad"}

    assert (grove.ends, grove.ignored) == ({0: "bad"}, 1)


def test_tree_without_children_is_done_when_it_is_left() -> None:
    """Kinesis trap 30: zero children."""
    grove = Grove()
    with grove.tree():
        pass

    assert grove.ends == {0: "finished"}


def test_second_settle_changes_nothing_and_is_counted() -> None:
    """Kinesis trap 30: duplicate acks would take each other back in an XOR."""
    grove = Grove()
    with grove.tree() as tree:
        one, two = tree.branch(), tree.branch()
    one.ack()

    assert [one.ack(), one.fail(), one.reject(), one.is_settled] == [False, False, False, True]
    assert (grove.ends, grove.ignored) == ({}, 3)
    assert two.ack()
    assert grove.ends == {0: "finished"}


def test_done_and_failed_whichever_is_first_stands() -> None:
    """A fail of one branch wins over acks of all others; after the end it is late."""
    grove = Grove()
    with grove.tree(1) as failed:
        bad, good = failed.branch(), failed.branch()
    with grove.tree(2) as done:
        branch = done.branch()
    good.ack()
    bad.fail("bad")
    branch.ack()

    assert not failed.fail()
    assert not done.fail()
    assert grove.ends == {1: "bad", 2: "finished"}


def test_tree_can_be_failed_after_its_first_branch_was_acked() -> None:
    """Whoever keeps the tree can end it, also with a reject."""
    grove = Grove()
    with grove.tree(1) as one:
        one.branch()
    with grove.tree(2) as two:
        two.branch()

    assert one.fail(delay=3.0)
    assert two.reject("poison")
    retry, reject = grove.ends[1], grove.ends[2]
    assert isinstance(retry, Retry)
    assert (str(retry), retry.delay) == ("the tree failed", 3.0)
    assert isinstance(reject, Reject)
    assert str(reject) == "poison"


def test_wrong_delay_is_refused_and_the_branch_stays_open() -> None:
    """A delay that cannot work must not cost the record its next delivery."""
    grove = Grove()
    branch = grove.tree().branch()

    with pytest.raises(ConfigurationError, match=r"delay=-1"):
        branch.fail(delay=-1)
    assert not branch.is_settled
    assert branch.fail("bad")


def test_block_of_a_branch_acks_or_fails_it() -> None:
    """As with the tree: a normal end acks, an exception fails it and flies on."""
    grove = Grove()
    error = ValueError("no")
    with grove.tree(1) as good, good.branch():
        pass
    with pytest.raises(ValueError, match="no"), grove.tree(2).branch():
        raise error

    assert grove.ends == {1: "finished", 2: error}


def test_cancellation_leaves_a_branch_open() -> None:
    """A drain's cancellation is no failed attempt: it says nothing about the work."""
    grove = Grove()
    tree = grove.tree()

    with pytest.raises(KeyboardInterrupt), tree.branch():
        raise KeyboardInterrupt
    assert grove.ends == {}
    assert not tree.is_settled


def test_settled_in_its_block_is_not_settled_again() -> None:
    """What the block says stands, and leaving it is nothing late."""
    grove = Grove()
    with grove.tree() as tree:
        tree.ack()

    assert (grove.ends, grove.ignored) == ({0: "finished"}, 0)


@pytest.mark.parametrize("settle", [Branch.ack, Branch.fail, Branch.reject, Branch.token])
def test_settled_branch_makes_no_children_and_no_token(settle: object) -> None:
    """A child of a tree that may be over would be waited for by nobody."""
    assert callable(settle)
    branch = Grove().tree().branch()
    settle(branch)

    for make in (branch.branch, branch.token, lambda: Branch.join([branch])):
        with pytest.raises(HandlerError, match="settled or handed over"):
            make()


# -- joins ------------------------------------------------------------------------------------


def test_joined_branch_is_waited_for_by_all_trees() -> None:
    """Multi-anchor: one piece of work made of two records, also of two partitions."""
    here, there = Grove(seed=1), Grove(seed=2)
    with here.tree() as one, there.tree() as two:
        both = Branch.join([one, two])
    deeper = both.branch()
    both.ack()
    assert (here.ends, there.ends) == ({}, {})

    assert deeper.ack()
    assert (here.ends, there.ends) == ({0: "finished"}, {0: "finished"})


def test_joined_branch_fails_all_trees() -> None:
    """Kinesis trap 30: multi-anchor fail."""
    here, there = Grove(seed=1), Grove(seed=2)
    with here.tree() as one, there.tree() as two:
        both = one.join([one, two])

    assert both.fail("bad")
    assert (here.ends, there.ends) == ({0: "bad"}, {0: "bad"})
    assert not both.fail("again")


def test_joined_branch_rejects_and_extends_all_trees() -> None:
    """Whatever can be said of a branch."""
    here, there = Grove(seed=1), Grove(seed=2)
    both = Branch.join([here.tree(), there.tree()])

    assert both.reject("poison")
    assert [str(grove.ends[0]) for grove in (here, there)] == ["poison", "poison"]
    assert not both.extend(5.0)
    assert (here.ignored, there.ignored) == (1, 1)


def test_two_anchors_of_one_tree_do_not_cancel_each_other() -> None:
    """Kinesis trap 30: the same root twice, and even the same branch twice."""
    grove = Grove()
    with grove.tree() as tree:
        one, two = tree.branch(), tree.branch()
    both = Branch.join([one, two, two])
    one.ack()
    two.ack()
    assert grove.ends == {}

    with both:
        pass
    assert grove.ends == {0: "finished"}


def test_join_of_a_settled_branch_leaves_the_others_as_they_were() -> None:
    """No edge is made that nobody could settle."""
    grove = Grove()
    with grove.tree() as tree:
        one, two = tree.branch(), tree.branch()
        both = Branch.join([one, two])
    two.ack()
    for anchor in (one, both):
        with pytest.raises(HandlerError):
            Branch.join([anchor, two])
    one.ack()
    both.ack()

    assert grove.ends == {0: "finished"}


def test_joined_branch_with_one_anchor_over_still_counts_for_the_others() -> None:
    """A tree that failed meanwhile does not keep the other from being done."""
    grove = Grove()
    with grove.tree(1) as one, grove.tree(2) as two:
        both = Branch.join([one, two])
    one.fail("bad")

    assert both.ack()
    assert grove.ends == {1: "bad", 2: "finished"}


# -- unanchored, and other processes ----------------------------------------------------------


def test_unanchored_branch_does_nothing() -> None:
    """Code that takes a branch can be given work that nobody waits for, as often as it likes."""
    branch = Branch.unanchored()
    for _ in range(2):
        with branch.branch() as child:
            assert not child.is_settled
        assert [branch.ack(), branch.fail(), branch.reject(), branch.extend(1.0)] == [False] * 4
        assert decode_token(branch.token()) == []
        assert branch.open_branches() == []


def test_token_carries_what_is_still_to_be_settled() -> None:
    """The branch and its children so far; the object is spent."""
    grove = Grove()
    tree = grove.tree()
    branch = tree.branch()
    branch.branch()
    edge = branch.edge

    assert decode_token(branch.token()) == [Anchor(grove.trees.id, branch.root, edge)]
    assert branch.is_settled
    assert not branch.ack()


def test_token_of_a_joined_branch_has_all_anchors() -> None:
    """One for each tree."""
    here, there = Grove(seed=1), Grove(seed=2)
    both = Branch.join([here.tree(), there.tree()])

    assert [a.table for a in decode_token(both.token())] == [here.trees.id, there.trees.id]
    assert both.is_settled


@pytest.mark.parametrize("share", [pickle.dumps, copy.copy])
def test_branch_cannot_be_copied_by_accident(share: object) -> None:
    """Two that ack one edge would take each other back; the error names the way."""
    assert callable(share)
    with pytest.raises(TypeError, match=r"branch\.token\(\)"):
        share(Grove().tree())


def test_joined_branch_settled_in_its_block_is_not_late() -> None:
    """As with any branch; and what is open of it is acked."""
    here, there = Grove(), Grove()
    first, second = here.tree(), there.tree()
    with Branch.join([first, second]) as joined:
        joined.ack()
        first.ack()
    second.ack()
    one, two = here.tree(1), there.tree(1)
    with Branch.join([one, two]):
        one.ack()
    assert here.ignored == there.ignored == 0
    assert (set(here.ends), set(there.ends)) == ({0, 1}, {0})  # two is open itself
