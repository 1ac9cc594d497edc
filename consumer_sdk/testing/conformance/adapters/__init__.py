"""The suites that adapters pass, one for each kind.

Subclass one and give it a broker::

    class TestMyAdapter(AdapterSuite):
        @pytest.fixture
        def harness(self) -> AdapterHarness:
            return MyHarness()

The suites wait for events with `AdapterHarness.patience`, never for a time to pass, except
where the claim is that nothing comes (`AdapterHarness.quiet`).
"""

from __future__ import annotations

from typing import ClassVar

from consumer_sdk.records import Start, StartPoint
from consumer_sdk.testing.conformance.adapters.commits import CommitCases
from consumer_sdk.testing.conformance.adapters.delivery import DeliveryCases
from consumer_sdk.testing.conformance.adapters.harness import AdapterHarness, Record
from consumer_sdk.testing.conformance.adapters.leases import LeaseCases
from consumer_sdk.testing.conformance.adapters.membership import MembershipCases, RebalanceCases
from consumer_sdk.testing.conformance.adapters.pausing import PausingCases
from consumer_sdk.testing.conformance.adapters.queue import QueueCases
from consumer_sdk.testing.conformance.adapters.redelivery import RedeliveryCases
from consumer_sdk.testing.conformance.adapters.starts import PositionCases, StartCases

__all__ = [
    "AdapterHarness",
    "AdapterSuite",
    "LeasedLogSuite",
    "QueueSuite",
    "RebalancingLogSuite",
    "Record",
    "RedeliveringLogSuite",
    "StandaloneLogSuite",
]


class AdapterSuite(
    DeliveryCases,
    StartCases,
    PositionCases,
    CommitCases,
    MembershipCases,
    RebalanceCases,
    PausingCases,
):
    """The claims of `consumer_sdk.abc.Adapter`, for logs whose group keeps a position."""


class LeasedLogSuite(
    DeliveryCases,
    StartCases,
    PositionCases,
    MembershipCases,
    RebalanceCases,
    LeaseCases,
    PausingCases,
):
    """For logs of a broker that neither keeps positions nor shares partitions out."""


class StandaloneLogSuite(DeliveryCases, StartCases, PositionCases, MembershipCases, PausingCases):
    """For logs of which each consumer reads all partitions: no group shares them, or keeps positions."""


class RedeliveringLogSuite(
    DeliveryCases, StartCases, MembershipCases, RedeliveryCases, PausingCases
):
    """For logs whose broker wants to hear of each settled record (``wants_settled``).

    A group of which the broker knows nothing starts at the earliest record.
    """

    start: ClassVar[Start] = StartPoint.BROKER


class RebalancingLogSuite(RedeliveringLogSuite, RebalanceCases):
    """The same, where the broker tells a member before it gives a partition to another."""


class QueueSuite(DeliveryCases, MembershipCases, RedeliveryCases, QueueCases, PausingCases):
    """For adapters of kind QUEUE.

    A group of which the broker knows nothing starts at the earliest record.
    """

    start: ClassVar[Start] = StartPoint.BROKER
