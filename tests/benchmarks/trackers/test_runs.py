"""What the trackers of the benchmark are fed with."""

from __future__ import annotations

from benchmarks.trackers.runs import blocks, entry, make_run, scatter


def test_scatter_acks_records_that_are_in_flight_once() -> None:
    """Each ack is for a record that was tracked, and none comes twice."""
    steps = scatter(window=30, records=200, run=10)
    acked = [index for step in steps for index in step]
    assert len(set(acked)) == len(acked) == 200
    assert all(max(step) < 30 + 10 * number for number, step in enumerate(steps, 1))


def test_scatter_of_one_seed_is_the_same_for_every_side() -> None:
    """The sides of a comparison are given the same acks."""
    assert scatter(30, 200, 10) == scatter(30, 200, 10) != scatter(30, 200, 10, seed=2)


def test_blocks_track_every_record_in_order() -> None:
    """Runs follow one another from the first record on, each with its acks."""
    acks = scatter(30, 500, 10)
    steps = [step for block in blocks(acks, 30, 10) for step in block]
    assert [m.position for run, _ in steps for m in run.messages] == list(range(30, 530))
    assert [indices for _, indices in steps] == acks


def test_entries_of_a_batch_are_in_order() -> None:
    """Positions of Pulsar's kind grow with the index."""
    positions = [message.position for message in make_run(0, 25, entry).messages]
    assert positions == sorted(positions)
    assert positions[-1] == (7, 2, 4)
