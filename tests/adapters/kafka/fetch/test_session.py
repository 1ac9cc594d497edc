"""Fetch sessions against a broker's side of KIP-227, and the rules by themselves."""

from __future__ import annotations

import random

import pytest
from aiokafka import TopicPartition

from consumer_sdk.adapters.kafka.fetch.session import (
    Ask,
    FetchSession,
    SessionRequest,
    single_request,
)

A, B, C = (TopicPartition("t", n) for n in range(3))
ID, OTHER = b"i" * 16, b"o" * 16
NOT_FOUND, BAD_EPOCH, TOPIC_ID = 70, 71, 106


def ask(offset: int = 0, topic_id: bytes | None = None) -> Ask:
    """What is wanted of a partition."""
    return Ask(topic_id, -1, offset, -1, 1000)


def test_first_request_is_full_and_the_next_ones_say_what_differs() -> None:
    """New, moved and forgotten partitions; nothing of those that stay as they are."""
    session = FetchSession()
    first = session.request({A: ask(), B: ask()})
    assert first[:2] == (0, 0)
    assert first.changed == {A: ask(), B: ask()}
    assert session.answered(7, 0)
    second = session.request({A: ask(5), C: ask()})
    assert second[:2] == (7, 1)
    assert second.changed == {A: ask(5), C: ask()}
    assert second.forgotten == {B: None}
    assert session.answered(7, 0)
    third = session.request({C: ask(), A: ask(5)})
    assert third[:2] == (7, 2)
    assert (third.changed, third.forgotten) == ({}, {})


def test_broker_without_sessions_is_told_everything_each_time() -> None:
    """Before Kafka 1.1, or where it has no room for another session."""
    session = FetchSession()
    for _ in range(3):
        request = session.request({A: ask()})
        assert request[:2] == (0, 0)
        assert request.changed == {A: ask()}
        assert session.answered(0, 0)


@pytest.mark.parametrize("error, number", [(NOT_FOUND, 0), (BAD_EPOCH, 7), (TOPIC_ID, 7), (-1, 7)])
def test_error_makes_the_next_request_full(error: int, number: int) -> None:
    """It closes the old session, if the broker may still have it."""
    session = FetchSession()
    session.request({A: ask()})
    session.answered(7, 0)
    session.request({A: ask(3)})
    assert not session.answered(0, error)
    request = session.request({A: ask(3)})
    assert request[:2] == (number, 0)
    assert request.changed == {A: ask(3)}


def test_failed_request_makes_the_next_one_full() -> None:
    """Whether the broker has had it, nobody knows."""
    session = FetchSession()
    session.request({A: ask(), B: ask()})
    session.answered(7, 0)
    session.request({A: ask(3)})
    session.failed()
    request = session.request({A: ask(3)})
    assert request[:2] == (7, 0)
    assert request.changed == {A: ask(3)}
    assert not request.forgotten


def test_session_that_its_broker_has_closed_is_not_used_again() -> None:
    """Session 0 in the answer to an incremental request; the answer counts."""
    session = FetchSession()
    session.request({A: ask()})
    session.answered(7, 0)
    session.request({A: ask(3)})
    assert session.answered(0, 0)
    assert session.request({A: ask(9)})[:2] == (0, 0)


def test_answer_of_another_session_does_not_count() -> None:
    """What the broker remembers is not known then."""
    session = FetchSession()
    session.request({A: ask()})
    session.answered(7, 0)
    session.request({A: ask(3)})
    assert not session.answered(8, 0)
    assert session.request({A: ask(3)})[:2] == (7, 0)


def test_topic_that_was_made_again_is_forgotten_by_its_old_id() -> None:
    """To the broker they are two partitions."""
    session = FetchSession()
    assert session.request({A: ask(9, ID)}).by_id
    session.answered(7, 0)
    request = session.request({A: ask(0, OTHER)})
    assert request.changed == {A: ask(0, OTHER)}
    assert request.forgotten == {A: ID}


def test_session_names_topics_in_one_way() -> None:
    """One whose id is not known makes a new session, in which all are named."""
    session = FetchSession()
    session.request({A: ask(0, ID)})
    session.answered(7, 0)
    request = session.request({A: ask(0, ID), B: ask()})
    assert request[:2] == (7, 0)
    assert not request.by_id
    assert set(request.changed) == {A, B}


def test_epochs_begin_anew_behind_the_last_one() -> None:
    """At 2^31 - 1 comes 1: 0 would open another session."""
    session = FetchSession()
    session.request({A: ask()})
    session.answered(7, 0)
    session.epoch = 2**31 - 1
    assert session.request({A: ask()}).epoch == 2**31 - 1
    session.answered(7, 0)
    assert session.request({A: ask()}).epoch == 1


class Broker:
    """The other side: at most one session, which it may lose."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._numbers = iter(range(1, 10_000))
        self.number = 0
        self.epoch = 0
        self.asks: dict[TopicPartition, Ask] = {}

    def answer(self, request: SessionRequest) -> tuple[int, int]:
        """Session and error; what it holds now is `asks`."""
        if request.epoch == 0:
            self.number = 0 if self._chance.random() < 0.2 else next(self._numbers)
            self.epoch, self.asks = 1, dict(request.changed)
            return self.number, 0
        if request.session != self.number:
            return 0, NOT_FOUND
        if request.epoch != self.epoch:
            return 0, BAD_EPOCH
        self.epoch += 1
        for tp in request.forgotten:
            self.asks.pop(tp)
        self.asks |= request.changed
        return self.number, 0


@pytest.mark.parametrize("seed", range(50))
def test_broker_always_knows_what_is_wanted(seed: int) -> None:
    """Whatever is lost on the way: requests, answers, sessions."""
    chance = random.Random(seed)
    session, broker = FetchSession(), Broker(chance)
    for _ in range(100):
        wanted = chance.sample([A, B, C], chance.randint(1, 3))
        asks = {tp: ask(chance.randint(0, 2)) for tp in wanted}
        request = session.request(asks)
        trouble = chance.random()
        if trouble < 0.1:  # it never comes
            session.failed()
            continue
        if trouble < 0.2:
            broker.number = 0
        number, error = broker.answer(request)
        if trouble > 0.9:  # the answer never comes
            session.failed()
        elif session.answered(number, error):
            assert broker.asks == asks


def test_single_request_touches_no_session() -> None:
    """Its epoch is that by which a session is closed, and there is none: the broker begins none."""
    asked = {A: ask(3, ID), B: ask(4, ID)}
    assert single_request(asked) == (0, -1, asked, asked, {}, True)
    assert not single_request({A: ask(3, ID), B: ask(4)}).by_id
    assert not single_request({}).by_id


def test_session_without_partitions_stays_what_it_is() -> None:
    """Nothing is wanted for a while: the broker forgets what it knew, and the session goes on."""
    session = FetchSession()
    session.request({A: ask(topic_id=ID)})
    assert session.answered(7, 0)
    nothing = session.request({})
    assert nothing[:2] == (7, 1)
    assert (nothing.forgotten, nothing.by_id) == ({A: ID}, True)
