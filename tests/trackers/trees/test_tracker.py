"""The tree tracker: one tree a delivery, receipts once for each branch, and no garbage."""

from __future__ import annotations

import pytest

from consumer_sdk import ConfigurationError, ConsumerClosedError, Receipts, Reject, Retry
from consumer_sdk.records import Branch
from tests.trackers.grove import Grove


def settle(grove: Grove, receipts: Receipts) -> list[bool]:
    """Applies receipts to the grove's trees."""
    return [grove.trees.settle(*item) for item in receipts.items()]


def acked(*tokens: bytes) -> Receipts:
    """Receipts of work that is done."""
    receipts = Receipts()
    for token in tokens:
        receipts.ack(token)
    return receipts


def test_next_delivery_has_a_new_root() -> None:
    """Kinesis trap 30: what comes late of the delivery before finds its root over."""
    grove = Grove()
    message = grove.message()
    before = grove.trees.tree(message).branch()
    grove.trees.release(message)
    now = grove.trees.tree(message)

    assert now.root != before.root
    assert [before.ack(), grove.ends] == [False, {}]
    assert now.ack()
    assert grove.ends == {0: "finished"}


def test_released_tree_says_nothing_and_leaves_nothing() -> None:
    """Its delivery has ended by other means: late branches are counted."""
    grove = Grove()
    message = grove.message()
    with grove.trees.tree(message) as tree:
        one, token = tree.branch(), tree.branch().token()
        two = tree.branch().token()
    settle(grove, acked(token))
    grove.trees.release(message)

    assert [one.ack(), one.fail(), tree.fail(), tree.extend(1.0)] == [False] * 4
    assert settle(grove, acked(two)) == [False]
    assert (grove.ends, grove.ignored, grove.trees.live) == ({}, 5, 0)
    assert grove.trees._settled == {}


def test_closed_tracker_forgets_all_trees() -> None:
    """The assignment is gone."""
    grove = Grove()
    tree = grove.tree()
    receipts = acked(tree.branch().token())
    settle(grove, receipts)
    grove.trees.close()

    assert [tree.ack(), *settle(grove, receipts)] == [False, False]
    assert (grove.ends, grove.trees.live, grove.trees._settled) == ({}, 0, {})


def test_another_first_branch_keeps_the_tree_open() -> None:
    """Whichever of the two is left first."""
    grove = Grove()
    message = grove.message()
    one, two = grove.trees.tree(message), grove.trees.another(message)
    assert one.ack()
    assert grove.ends == {}

    assert two.branch().ack()
    assert two.ack()
    assert grove.ends == {0: "finished"}


def test_fail_passes_the_error_on() -> None:
    """With a delay it is a `Retry`, as if a handler had raised it."""
    grove = Grove()
    error, retry = ValueError("no"), Retry("later", delay=7.0)
    grove.tree(1).fail(error)
    grove.tree(2).fail(retry)
    grove.tree(3).fail(error, delay=0.0)
    grove.tree(4).fail(Reject("never"))

    assert (grove.ends[1], grove.ends[2]) == (error, retry)
    made = grove.ends[3]
    assert isinstance(made, Retry)
    assert (str(made), made.delay) == ("no", 0.0)
    assert isinstance(grove.ends[4], Reject)


def test_names_are_refused_where_there_are_none() -> None:
    """The error names the option."""
    tree = Grove().tree()
    tree.branch("with a name that nobody keeps")

    with pytest.raises(ConfigurationError, match="name_branches=True"):
        tree.open_branches()


# -- sweeping ---------------------------------------------------------------------------------


def test_trees_of_messages_settled_otherwise_are_swept() -> None:
    """The ack of a message names no tree: at most half of the open trees are such garbage."""
    grove = Grove()
    for position in range(20_000):
        grove.tree(position)
        if position % 100:
            grove.acked.add(position)
            grove.trees.acked(1)
        open_trees = position // 100 + 1
        assert open_trees <= grove.trees.live <= 2 * open_trees + 17
    assert grove.ends == {}


def test_sweeps_cost_an_ack_next_to_nothing() -> None:
    """Each looks at as many trees as there were acks, twice, but for the first few."""
    grove = Grove()
    for position in range(20_000):
        grove.tree(position)
    assert grove.sweeps == []

    for position in range(20_000):
        grove.acked.add(position)
        grove.trees.acked(1)
    assert grove.trees.live <= 17
    assert sum(grove.sweeps) < 3 * 20_000


@pytest.mark.parametrize("live, few", [(10, 16), (33, 16), (100, 50)])
def test_sweep_comes_with_one_ack_more_than_a_few_and_than_half_of_the_trees(
    live: int, few: int
) -> None:
    """Each time anew."""
    grove = Grove()
    for position in range(live):
        grove.tree(position)
    for number in (1, 2):
        grove.trees.acked(few)
        assert len(grove.sweeps) == number - 1
        grove.trees.acked(1)
        assert grove.sweeps == [live] * number


def test_reject_as_a_reason_wins_over_a_delay() -> None:
    """There will be no next delivery."""
    grove = Grove()
    never = Reject("never")
    grove.tree().fail(never, delay=1.0)
    assert grove.ends == {0: never}


def test_sweep_spares_open_trees() -> None:
    """However often it runs."""
    grove = Grove()
    trees = [grove.tree(position) for position in range(10)]
    grove.acked = set(range(5))
    grove.trees.sweep()
    grove.trees.sweep()

    assert [tree.ack() for tree in trees] == [False] * 5 + [True] * 5


# -- receipts ---------------------------------------------------------------------------------


def test_receipts_settle_branches_of_other_processes() -> None:
    """Beside branches that are settled here."""
    grove = Grove()
    with grove.tree() as tree:
        here, there = tree.branch(), tree.branch().token()

    assert settle(grove, acked(there)) == [True]
    assert grove.ends == {}
    assert here.ack()
    assert grove.ends == {0: "finished"}


def test_receipt_that_is_applied_twice_counts_once() -> None:
    """XOR is not idempotent: a second one would take the first back."""
    grove = Grove()
    with grove.tree() as tree:
        one, two = tree.branch().token(), tree.branch().token()

    assert [*settle(grove, acked(one)), *settle(grove, acked(one))] == [True, False]
    assert settle(grove, acked(one, two)) == [False, True]
    assert (grove.ends, grove.ignored) == ({0: "finished"}, 2)
    assert grove.trees._settled == {}


def test_childs_receipt_may_come_before_its_parents() -> None:
    """Order-free, also between processes."""
    grove = Grove()
    with grove.tree() as tree:
        parent = tree.branch().token()
    above, below = Receipts(), Receipts()
    child = above.branch(parent)
    grandchild = below.branch(child)
    below.ack(grandchild)
    below.ack(child)
    above.ack(parent)

    assert settle(grove, below) == [True, True]
    assert grove.ends == {}
    assert settle(grove, above) == [True]
    assert grove.ends == {0: "finished"}


def test_children_made_but_not_acked_keep_the_tree_open() -> None:
    """Also when the parent's own receipt is only of their making."""
    grove = Grove()
    with grove.tree() as tree:
        parent = tree.branch().token()
    receipts = Receipts()
    child = receipts.branch(parent)
    assert settle(grove, receipts) == [False]
    receipts.ack(parent)
    assert settle(grove, receipts) == [True]
    assert grove.ends == {}

    assert settle(grove, acked(child)) == [True]
    assert grove.ends == {0: "finished"}


def test_task_that_runs_twice_counts_once() -> None:
    """Spark speculation: both runs come back, merged or one by one."""
    for merged in (True, False):
        grove = Grove()
        with grove.tree() as tree:
            parent = tree.branch().token()
        runs = []
        for _ in range(2):
            run = Receipts()
            run.ack(run.branch(parent))
            run.ack(parent)
            runs.append(run)
        changed = settle(grove, runs[0] | runs[1]) if merged else []
        for run in runs if not merged else ():
            changed += settle(grove, run)
        assert sum(changed) == 2
        assert grove.ends == {0: "finished"}


@pytest.mark.parametrize("what", ["fail", "reject"])
def test_failed_receipt_ends_the_tree_with_its_reason(what: str) -> None:
    """Also of a branch that another run has acked: fail wins."""
    grove = Grove()
    with grove.tree() as tree:
        one = tree.branch().token()
        tree.branch()
    settle(grove, acked(one))
    receipts = acked(one)
    getattr(receipts, what)(one, "no")

    assert settle(grove, receipts) == [True]
    assert str(grove.ends[0]) == "no"
    assert isinstance(grove.ends[0], Reject) == (what == "reject")
    assert settle(grove, receipts) == [False]


def test_token_of_a_joined_branch_settles_all_its_trees() -> None:
    """Each tracker takes the anchors that are its own."""
    here, there = Grove(seed=1), Grove(seed=2)
    with here.tree() as one, there.tree() as two:
        token = Branch.join([one, two]).token()
    receipts = Receipts()
    child = receipts.branch(token)
    receipts.ack(token)
    receipts.ack(child)

    for anchor, receipt in receipts.items():
        owner = here if anchor.table == here.trees.id else there
        assert owner.trees.settle(anchor, receipt)
    assert (here.ends, there.ends) == ({0: "finished"}, {0: "finished"})


def test_whole_tree_can_be_handed_over() -> None:
    """Leaving the block of a tree whose first branch is a token is nothing late."""
    grove = Grove()
    with grove.tree() as tree:
        token = tree.token()

    assert grove.ignored == 0
    assert settle(grove, acked(token)) == [True]
    assert grove.ends == {0: "finished"}


def test_forbidden_trees_are_the_error_of_the_fork() -> None:
    """In a forked child, whatever would change a tree of the parent."""

    class Forked:
        def __getattr__(self, name: str) -> object:
            raise ConsumerClosedError(name)

    grove = Grove()
    with grove.tree() as tree:
        branch, token = tree.branch(), tree.branch().token()
    grove.trees.invalidate_after_fork(Forked())

    for use in (branch.branch, branch.ack, tree.fail, lambda: settle(grove, acked(token))):
        with pytest.raises(ConsumerClosedError):
            use()
    assert grove.ends == {}
