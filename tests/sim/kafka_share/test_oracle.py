"""The simulation can fail: what is broken on purpose is found, and named, within some seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from consumer_sdk.adapters.kafka.share import session
from consumer_sdk.adapters.kafka.share.locks import Locks
from consumer_sdk.adapters.kafka.share.member import ShareMember
from consumer_sdk.adapters.kafka.share.messages import AckBatch, AckType
from consumer_sdk.adapters.kafka.share.session import ShareSession
from tests.sim.kafka_share.seeds import RUNNER

pytestmark = pytest.mark.sim

ENOUGH = 120
"""Seeds within which each is found."""


def first_error(first: int = 0) -> str:
    """What the first seed from there on says that fails; each test begins with one that does."""
    failures = (RUNNER.try_seed(seed) for seed in range(first, first + ENOUGH))
    return next((failure.error for failure in failures if failure), "all seeds pass")


def test_ack_of_an_earlier_delivery_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said late it is taken as said of the delivery that came meanwhile."""
    monkeypatch.setattr(ShareSession, "_overtake", lambda *_: None)
    assert "which was accepted" in first_error(69)


def test_ack_of_what_lies_between_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One range over all of them accepts what no handler has seen."""

    def as_one(types: Mapping[int, AckType]) -> Sequence[AckBatch]:
        return [AckBatch(min(types), max(types), (int(next(iter(types.values()))),))]

    monkeypatch.setattr(session, "ack_batches", as_one)
    assert " is ACCEPTED" in first_error(2)


def test_record_that_outlives_its_lock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is handled although another member has it."""
    monkeypatch.setattr(Locks, "expire", lambda *_: [])
    monkeypatch.setattr(ShareSession, "wake_at", lambda _self: math.inf)
    assert "which was accepted" in first_error(63)


def test_lock_that_is_not_renewed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing befalls anybody no lock may end."""
    monkeypatch.setattr(Locks, "renewal", property(lambda _self: math.inf))
    assert "does not renew" in first_error(50)


def test_session_that_never_counts_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is opened anew each time, so that nothing is ever acknowledged."""
    answered = ShareSession.answered

    def once(self: ShareSession, *args: Any) -> Any:
        received = answered(self, *args)
        self.epoch = 0
        return received

    monkeypatch.setattr(ShareSession, "answered", once)
    assert "AssertionError" in first_error(10)


def test_member_that_is_never_told_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads what it is to read."""
    monkeypatch.setattr(ShareMember, "answered", lambda *_: None)
    assert "is not in flight" in first_error()
