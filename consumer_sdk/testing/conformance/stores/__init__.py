"""The suite that every checkpoint store passes.

Subclass it and give it a store::

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def harness(self, tmp_path) -> StoreHarness:
            return MyHarness(tmp_path)
"""

from __future__ import annotations

from consumer_sdk.testing.conformance.stores.case import StoreHarness
from consumer_sdk.testing.conformance.stores.contents import ContentCases
from consumer_sdk.testing.conformance.stores.failures import FailureCases
from consumer_sdk.testing.conformance.stores.fencing import FencingCases

__all__ = ["StoreHarness", "StoreSuite"]


class StoreSuite(ContentCases, FencingCases, FailureCases):
    """The claims of `consumer_sdk.abc.CheckpointStore`."""
