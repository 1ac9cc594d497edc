"""What a queue's tracker takes over of other consumers' counts."""

from __future__ import annotations

from consumer_sdk.records import VerdictKind
from tests.trackers.building import NOW, POLICY, WALL, deliver, look, make_queue, send


def test_record_that_failed_elsewhere_comes_with_its_count() -> None:
    """Also one that comes only now, and one that is at its limit."""
    queue = make_queue()
    limit = POLICY.max_attempts
    assert limit is not None
    stored = {5: (2, WALL), 6: (limit, WALL), 7: (1, WALL + 3.0)}
    assert queue.learn(stored, {}, NOW, WALL) == {5: 2, 6: limit, 7: 1}

    tracked = deliver(queue, [4, 5, 6, 7])
    assert (tracked.tries, list(tracked.exhausted), list(tracked.held)) == ({1: 3}, [2], [3])
    assert queue.next_due() == NOW + 3.0


def test_retry_counts_what_others_have_counted_since() -> None:
    """Its next delivery's number says so."""
    queue = make_queue()
    deliver(queue, [5])
    queue.nack(0, 1, NOW, 4.0, "message")

    assert queue.learn({5: (2, WALL)}, {5: 1}, NOW, WALL) == {5: 2}
    assert queue.due(NOW + 4).ready == [(0, 3, "message")]
    assert queue.learn({5: (2, WALL)}, {5: 2}, NOW, WALL) == {}


def test_count_at_the_limit_does_not_grow_by_what_is_known() -> None:
    """A checkpoint has one less than the limit: that all of it is stored is no news."""
    queue = make_queue()
    limit = POLICY.max_attempts
    assert limit is not None
    deliver(queue, [5])
    queue.nack(0, 1, NOW, 4.0, "message")

    assert queue.learn({5: (limit + 1, WALL)}, {5: 1}, NOW, WALL) == {5: limit - 1}
    for _ in range(3):
        counted = {p: failures for p, (failures, _) in look(queue).attempts.items()}
        assert counted == {5: limit - 1}
        assert queue.learn({5: (limit + 1, WALL)}, counted, NOW, WALL) == {}
    assert queue.due(NOW + 4).ready == [(0, limit, "message")]


def test_delivery_in_a_handler_keeps_its_number() -> None:
    """Its failure would be taken for an older delivery's, and ignored."""
    queue = make_queue()
    deliver(queue, [5])

    assert queue.learn({5: (2, WALL)}, {}, NOW, WALL) == {}
    assert queue.nack(0, 1, NOW).kind is VerdictKind.RETRY


def test_record_that_was_settled_here_is_not_learnt_again() -> None:
    """Whoever counted it held another delivery of it."""
    queue = make_queue()
    deliver(queue, [5])
    queue.ack(0)

    assert queue.learn({5: (2, WALL)}, {}, NOW, WALL) == {}
    send(queue)
    assert queue.learn({5: (2, WALL)}, {}, NOW, WALL) == {}
    assert look(queue).attempts == {}


def test_what_nobody_has_stored_any_more_is_forgotten() -> None:
    """Another consumer has settled it; nor is what is too old learnt."""
    queue = make_queue(attempts_age=100.0)
    queue.learn({5: (2, WALL), 6: (1, WALL)}, {}, NOW, WALL)
    assert look(queue).attempts.keys() == {5, 6}
    assert queue.learn({6: (1, WALL), 7: (1, WALL - 101.0)}, {}, NOW, WALL) == {6: 1}
    assert look(queue).attempts.keys() == {6}
