"""The suite that every log adapter passes.

Subclass it and give it a broker::

    class TestMyAdapter(AdapterSuite):
        @pytest.fixture
        def harness(self) -> AdapterHarness:
            return MyHarness()

The suite waits for events with `AdapterHarness.patience`, never for a time to pass, except
where the claim is that nothing comes (`AdapterHarness.quiet`).
"""

from __future__ import annotations

from consumer_sdk.testing.conformance.adapter_delivery import DeliveryCases
from consumer_sdk.testing.conformance.adapter_harness import AdapterHarness, Record
from consumer_sdk.testing.conformance.adapter_membership import CommitCases, MembershipCases

__all__ = ["AdapterHarness", "AdapterSuite", "Record"]


class AdapterSuite(DeliveryCases, CommitCases, MembershipCases):
    """The claims of `consumer_sdk.abc.Adapter`, for adapters of kind LOG."""
