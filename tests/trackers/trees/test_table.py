"""The table of open trees: what ends a tree, what is late, and what memory it holds."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from consumer_sdk.trackers.trees.table import FIRST_EDGE, LATE, TreeTable


def chunks(table: TreeTable) -> int:
    """How many chunks are held."""
    return len(table._chunks)


def test_tree_is_done_by_its_last_edge() -> None:
    """XOR each edge in when it is made and when it is acked."""
    table = TreeTable()
    root = table.open("x")

    assert table.xor(root, FIRST_EDGE ^ 5 ^ 9) is None
    assert table.xor(root, 5) is None
    assert table.owner(root) == "x"
    assert table.xor(root, 9) == "x"
    assert table.owner(root) is None


@pytest.mark.parametrize("seed", range(20))
def test_order_does_not_matter(seed: int) -> None:
    """Kinesis trap 30: acks before init, children before parents: the last one ends it."""
    rng = random.Random(seed)
    table = TreeTable()
    root = table.open("x")
    edges = [rng.getrandbits(64) for _ in range(20)]
    # A chain: each edge is acked together with the one that was made of it.
    steps = [a ^ b for a, b in zip([FIRST_EDGE, *edges], [*edges, 0], strict=True)]
    rng.shuffle(steps)

    assert [table.xor(root, step) for step in steps] == [None] * 20 + ["x"]


def test_late_unknown_and_future_roots_change_nothing() -> None:
    """Kinesis trap 30: a late ack is told apart, and leaves no garbage."""
    table = TreeTable()
    root = table.open("x")
    table.xor(root, FIRST_EDGE)

    for late in (root, root + 1, root + 1000, -1, 2**63):
        assert table.xor(late, 7) is LATE
        assert table.end(late) is LATE
        assert table.owner(late) is None
    assert (table.live, list(table.roots())) == (0, [])


def test_zero_changes_nothing() -> None:
    """Kinesis trap 30, id 0: no edge, no end."""
    table = TreeTable()
    root = table.open("x")

    assert table.xor(root, 0) is None
    assert table.live == 1


def test_end_returns_the_owner_once() -> None:
    """A fail wins at once: nothing after it finds the tree."""
    table = TreeTable()
    root = table.open("x")

    assert table.end(root) == "x"
    assert (table.end(root), table.xor(root, FIRST_EDGE)) == (LATE, LATE)


def test_roots_are_never_used_twice() -> None:
    """A root is its own generation."""
    table = TreeTable()
    roots = []
    for _ in range(1000):
        roots.append(table.open("x"))
        assert table.end(roots[-1]) == "x"

    assert roots == list(range(1000))
    assert chunks(table) == 1


def test_chunk_goes_with_its_last_tree() -> None:
    """Whatever ends them, in whatever order; the one that still grows stays."""
    table = TreeTable()
    roots = [table.open(number) for number in range(3 * 256)]
    assert chunks(table) == 3
    random.Random(1).shuffle(roots)
    for root in roots:
        table.xor(root, FIRST_EDGE)

    assert (table.live, chunks(table)) == (0, 0)
    assert table.open("x") == 768


def test_open_trees_are_listed_oldest_first() -> None:
    """Over several chunks, without those that are over."""
    table = TreeTable()
    for number in range(600):
        table.open(number)
    for root in set(range(600)) - {3, 300, 599}:
        table.end(root)

    assert list(table.roots()) == [(3, 3), (300, 300), (599, 599)]
    assert table.live == 3


def test_closed_table_forgets_all() -> None:
    """The assignment is gone: every call is late."""
    table = TreeTable()
    root = table.open("x")
    table.close()

    assert (table.xor(root, FIRST_EDGE), table.live, chunks(table)) == (LATE, 0, 0)
    for _ in range(600):
        assert table.xor(table.open("x"), FIRST_EDGE) is LATE
    assert chunks(table) == 0


def test_open_tree_costs_less_than_twenty_bytes() -> None:
    """The seed algorithm's own claim."""
    table, owner, count = TreeTable(), object(), 100_000
    tracemalloc.start()
    try:
        for _ in range(count):
            table.open(owner)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert used / count <= 20
