"""Trees that name their open branches."""

from __future__ import annotations

from consumer_sdk import Branch, Receipts
from consumer_sdk.trackers import NamingTrees
from tests.trackers.grove import Grove


def test_open_branches_have_the_names_given_or_numbers() -> None:
    """A child without a name is a number under its parent; what is settled is not listed."""
    grove = Grove(NamingTrees)
    with grove.tree() as tree:
        assert tree.open_branches() == ["tree"]
        one, two = tree.branch(), tree.branch("footer")
        one.branch()
        two.branch()
        two.branch("deep")

    assert sorted(tree.open_branches()) == ["deep", "footer", "footer.1", "tree.1", "tree.1.1"]
    one.ack()
    two.ack()
    assert sorted(tree.open_branches()) == ["deep", "footer.1", "tree.1.1"]


def test_each_tree_has_its_own_names() -> None:
    """A joined branch is in both, and speaks for both."""
    grove = Grove(NamingTrees)
    one, two = grove.tree(1), grove.tree(2)
    both = Branch.join([one, two.branch("second")])

    assert one.open_branches() == ["tree", "tree.1"]
    assert both.open_branches() == ["tree", "tree.1", "tree", "second", "second.1"]


def test_second_first_branch_is_named_too() -> None:
    """See `TreeTracker.another`."""
    grove = Grove(NamingTrees)
    message = grove.message()
    grove.trees.tree(message)
    tree = grove.trees.another(message)

    assert tree.open_branches() == ["tree", "tree"]


def test_names_go_with_their_tree() -> None:
    """However it ends: nothing is kept of it, and late branches have none."""
    grove = Grove(NamingTrees)
    message = grove.message(4)
    trees = [grove.tree(1), grove.tree(2), grove.tree(3), grove.trees.tree(message)]
    late = trees[1].branch()
    trees[0].ack()
    trees[1].fail()
    trees[2].reject()
    grove.trees.release(message)

    assert [tree.open_branches() for tree in trees] == [[]] * 4
    late.branch("late").ack()
    assert grove.trees._names == {}  # type: ignore[attr-defined]  # a NamingTrees

    open_ = grove.tree(5)
    grove.trees.close()
    assert open_.open_branches() == []


def test_branches_of_other_processes_are_named_by_their_receipts() -> None:
    """The token keeps its name; children made elsewhere come under it with the receipt."""
    grove = Grove(NamingTrees)
    with grove.tree() as tree:
        branch = tree.branch("lines")
        branch.branch().ack()
        token = branch.token()
    assert tree.open_branches() == ["lines"]

    receipts = Receipts()
    one, two, three = (receipts.branch(token) for _ in range(3))
    early = Receipts()
    early.ack(two)
    for part in (receipts, early):  # the parent's tells of children alone
        for item in part.items():
            grove.trees.settle(*item)
    assert tree.open_branches() == ["lines"]

    receipts.ack(token)
    for _ in range(2):
        for item in receipts.items():
            grove.trees.settle(*item)
    assert tree.open_branches() == ["lines.2", "lines.4"]

    last = Receipts()
    last.ack(one)
    last.ack(three)
    for item in last.items():
        grove.trees.settle(*item)
    assert grove.ends == {0: "finished"}


def test_receipt_that_fails_names_nothing() -> None:
    """The tree is over."""
    grove = Grove(NamingTrees)
    tree = grove.tree()
    receipts = Receipts()
    token = tree.branch().token()
    receipts.fail(token)
    for item in receipts.items():
        grove.trees.settle(*item)

    assert tree.open_branches() == []
