"""A membership that is closed while it is being made."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.adapters.kafka.consumer import membership as module
from consumer_sdk.adapters.kafka.consumer.membership import Membership


async def test_membership_that_is_left_before_it_has_joined_never_joins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. The session is asked for; 2. whoever opened it closes; 3. the answer comes: nobody would end that member."""
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(*_: object) -> float:
        asked.set()
        await may_answer.wait()
        return 45.0

    monkeypatch.setattr(module, "read_session_timeout", answer)
    adapter = KafkaAdapter("t", bootstrap_servers="a:1", group="g", protocol="consumer")
    nothing: Any = SimpleNamespace(_client=None, member=None)
    membership = Membership(nothing, nothing, nothing, adapter._options, wake=lambda: None)
    joining = asyncio.create_task(membership.join({}))
    await asked.wait()
    await membership.drain()
    await membership.leave()
    may_answer.set()
    await joining
    assert membership._runner is None
