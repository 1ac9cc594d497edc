"""The Kinesis adapter keeps the adapters' contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from consumer_sdk.abc import Adapter
from consumer_sdk.adapters.kinesis.service import client
from consumer_sdk.testing.conformance.adapters import AdapterHarness, LeasedLogSuite
from consumer_sdk.testing.kinesis import (
    FakeKinesis,
    FakeKinesisServer,
    Quirks,
    ShardLimits,
    fanout,
)
from consumer_sdk.testing.servers import KinesaliteServer, KinesisServer
from tests.adapters.kinesis.harness import FakeHarness
from tests.adapters.kinesis.server_harness import (
    FakeServerHarness,
    KinesaliteHarness,
    ServerHarness,
)


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscriptions that follow one another need not be five real seconds apart, and so on."""
    monkeypatch.setattr(fanout, "TAKEOVER_AGE", 0.1)
    monkeypatch.setattr(client, "READY_POLL", 0.05)


class TestOnTheFake(LeasedLogSuite):
    """In process."""

    @pytest.fixture
    def harness(self) -> AdapterHarness:
        """A fake of the test's own."""
        return FakeHarness()


class FanOutHarness(FakeHarness):
    """Its adapters are subscribers."""

    def make_adapter(self, stream: str, group: str, **options: Any) -> Adapter:
        return super().make_adapter(stream, group, **{"fan_out": group} | options)


class TestOnTheFakeWithFanOut(LeasedLogSuite):
    """In process; records are pushed."""

    @pytest.fixture
    def harness(self, no_patience: None) -> AdapterHarness:
        """A fake of the test's own."""
        return FanOutHarness()


class TestOnTheFakeServer(LeasedLogSuite):
    """Over HTTP, through the client: polled, read by the client's own parser, and pushed."""

    @pytest.fixture(
        params=[
            pytest.param({"fast_decode": False}, marks=pytest.mark.campaign),
            {"fan_out": "c"},
        ],
        ids=str,
    )
    async def harness(
        self, request: pytest.FixtureRequest, no_patience: None
    ) -> AsyncIterator[AdapterHarness]:
        """A server of the test's own."""
        model = FakeKinesis(limits=ShardLimits.none(), quirks=Quirks(creating=0.05))
        async with FakeKinesisServer(model) as server:
            yield FakeServerHarness(server, **request.param)


@pytest.mark.campaign
@pytest.mark.kinesis
class TestOnKinesisLocal(LeasedLogSuite):
    """Through the client, with child shards in the answers."""

    @pytest.fixture
    def harness(self, kinesis_server: KinesisServer) -> AdapterHarness:
        """Streams of the test's own."""
        return ServerHarness(kinesis_server)


@pytest.mark.kinesis
class TestOnKinesalite(LeasedLogSuite):
    """Through the client; what has become of a shard is found in the list of shards alone."""

    @pytest.fixture
    def harness(self, kinesalite_server: KinesaliteServer) -> AdapterHarness:
        """Streams of the test's own."""
        return KinesaliteHarness(kinesalite_server)
