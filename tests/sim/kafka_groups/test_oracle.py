"""The simulation can fail: what is broken on purpose is found, and named, within some seeds."""

from __future__ import annotations

import math
from typing import Any

import pytest

from consumer_sdk.adapters.kafka.groups import assignors, classic_member, consumer_member
from consumer_sdk.adapters.kafka.groups.classic_member import ClassicMember
from consumer_sdk.adapters.kafka.groups.consumer_member import ConsumerMember
from consumer_sdk.adapters.kafka.groups.messages import TopicPartitions
from tests.sim.kafka_groups.plan import PROTOCOLS, Protocol
from tests.sim.kafka_groups.seeds import RUNNER

pytestmark = pytest.mark.sim

ENOUGH = 120
"""Seeds of a protocol within which each is found."""


def first_error(protocol: Protocol, first: int = 0) -> str:
    """What the first seed that fails says."""
    start = first - first % len(PROTOCOLS) + PROTOCOLS.index(protocol)
    seeds = range(start, start + ENOUGH * len(PROTOCOLS), len(PROTOCOLS))
    failures = (RUNNER.try_seed(seed) for seed in seeds)
    return next((failure.error for failure in failures if failure), "all seeds pass")


def test_partition_that_is_given_back_before_it_is_drained_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A heartbeat does not name what is still being drained."""
    owned = consumer_member._Holdings.owned

    def without_draining(self: consumer_member._Holdings) -> TopicPartitions:
        held = self.held
        self.held = {tp: topic for tp, topic in held.items() if tp not in self.draining}
        try:
            return owned(self)
        finally:
            self.held = held

    monkeypatch.setattr(consumer_member._Holdings, "owned", without_draining)
    assert "both hold" in first_error("consumer")


@pytest.mark.parametrize(
    "member, protocol", [(ConsumerMember, "consumer"), (ClassicMember, "cooperative")]
)
def test_session_without_an_end_is_found(
    monkeypatch: pytest.MonkeyPatch, member: type[Any], protocol: Protocol
) -> None:
    """A process that was stopped, or cut off, goes on with what others have by now."""
    monkeypatch.setattr(member, "held_until", property(lambda _self: math.inf))
    assert "both hold" in first_error(protocol)


def test_session_that_counts_from_the_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer may come seconds after the coordinator has begun the session."""
    until = ConsumerMember.held_until.fget  # type: ignore[attr-defined]  # it is a property
    assert until is not None
    late = property(lambda self: until(self) + 4.0)
    monkeypatch.setattr(ConsumerMember, "held_until", late)
    assert "both hold" in first_error("consumer")


def test_cooperative_member_that_gives_all_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not move is revoked."""

    def revoke_all(self: ClassicMember, reason: str) -> None:
        self._rejoin = self._rejoin or reason
        self._revoke(self._held - self._draining)

    monkeypatch.setattr(ClassicMember, "_wants_to_join", revoke_all)
    assert "does not move" in first_error("cooperative")


def test_leader_that_gives_away_what_is_claimed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new owner does not wait for the old one."""
    monkeypatch.setattr(assignors, "_withhold_claimed", lambda _shares, _claims: None)
    assert "both hold" in first_error("cooperative")


def test_eager_member_that_joins_before_it_has_drained_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others get its partitions meanwhile."""

    def at_once(self: ClassicMember) -> bool:
        return self._rejoin is not None and self._joined is None

    monkeypatch.setattr(ClassicMember, "_may_join", at_once)
    assert "both hold" in first_error("eager")


def test_member_that_does_not_join_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it gave up is nobody's."""
    monkeypatch.setattr(ClassicMember, "_join_if_drained", lambda _self: None)
    assert "does not settle" in first_error("cooperative")


def test_broken_request_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two under way at once."""
    monkeypatch.setattr(classic_member.ClassicMember, "_is_kept", False)
    poll = ClassicMember.poll

    def poll_again(self: ClassicMember, now: float) -> Any:
        self._pending = None
        return poll(self, now)

    monkeypatch.setattr(ClassicMember, "poll", poll_again)
    assert "two requests" in first_error("eager")
