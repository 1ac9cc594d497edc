"""Edge ids: random, never 0, and no two processes make the same."""

from __future__ import annotations

import multiprocessing
import os
import random
from array import array
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.trackers.trees.edges import EdgePool, child_edge, new_edge


def test_edges_are_64_bits_and_differ() -> None:
    """Over the pool's end too, each bit is as often 1 as 0."""
    edges = [new_edge() for _ in range(5000)]

    assert len(set(edges)) == 5000
    assert all(0 < edge < 2**64 for edge in edges)
    assert all(2000 < sum(edge >> bit & 1 for edge in edges) < 3000 for bit in range(64))


def test_zero_is_left_out() -> None:
    """Kinesis trap 30, id 0: such an edge would be invisible."""
    rng = random.Random(0)

    def half_zeros(size: int) -> bytes:
        numbers = [rng.choice([0, rng.getrandbits(64)]) for _ in range(size // 8)]
        return array("Q", numbers).tobytes()

    pool = EdgePool(half_zeros)
    assert all(pool.new_edge() for _ in range(3000))


def _make_edges(count: int) -> list[int]:
    return [new_edge() for _ in range(count)]


def test_forked_workers_never_share_ids() -> None:
    """Kinesis trap 30: what is left of the parent's pool is thrown away in the child."""
    new_edge()  # the pool is in use
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as workers:
        theirs = workers.map(_make_edges, [700] * 4, chunksize=1)
    edges = [*_make_edges(700), *(edge for each in theirs for edge in each)]

    assert len(set(edges)) == len(edges) == 3500


def test_fork_in_the_middle_of_a_block_begins_a_new_one() -> None:
    """The iterator that hands ids out is the parent's own, and goes on with other bytes."""
    pool = EdgePool()
    pool.new_edge()
    rest = list(pool._block)[1:]
    pool.forget()

    assert not {pool.new_edge() for _ in range(600)} & set(rest)


def test_fork_before_the_first_id_is_no_error() -> None:
    """There is nothing to throw away."""
    pool = EdgePool()
    pool.forget()

    assert pool.new_edge()


def test_forked_child_by_os_fork_has_other_ids() -> None:
    """A bare fork, without multiprocessing."""
    reader, writer = os.pipe()
    new_edge()
    child = os.fork()
    if child == 0:
        os.write(writer, array("Q", islice(iter(new_edge, 0), 50)).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = array("Q", os.read(reader, 400))
    os.close(reader)
    os.close(writer)

    assert len(theirs) == 50
    assert not set(theirs) & {new_edge() for _ in range(600)}


@given(st.integers(1, 2**64 - 1), st.integers(0, 1000))
def test_child_edges_follow_from_the_parents(edge: int, number: int) -> None:
    """A task that runs twice makes the same children, each another one."""
    assert child_edge(edge, number) == child_edge(edge, number)
    assert 0 < child_edge(edge, number) < 2**64
    assert len({edge, child_edge(edge, number), child_edge(edge, number + 1)}) == 3


def test_child_edges_stay_what_they_are() -> None:
    """Two runs of a task may be of two versions of this package."""
    assert child_edge(5, 0) == 9668667916319647860
    assert child_edge(2**64 - 1, 7) == 17750248655755693033
