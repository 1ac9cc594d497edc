"""The suite that the leases of every store pass, with the harness of the store's own suite.

Subclass it and give it a store::

    class TestMyLeases(LeaseSuite):
        @pytest.fixture
        def harness(self, tmp_path) -> StoreHarness:
            return MyHarness(tmp_path)
"""

from __future__ import annotations

from consumer_sdk.testing.conformance.leases.membership import MembershipCases
from consumer_sdk.testing.conformance.leases.ownership import OwnershipCases
from consumer_sdk.testing.conformance.leases.partitions import PartitionCases
from consumer_sdk.testing.conformance.stores.case import StoreHarness

__all__ = ["LeaseSuite", "StoreHarness"]


class LeaseSuite(PartitionCases, OwnershipCases, MembershipCases):
    """The claims of `consumer_sdk.abc.Leases`."""
