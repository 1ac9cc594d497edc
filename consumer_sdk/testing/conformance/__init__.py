"""Suites that say what the contracts of `consumer_sdk.abc` mean; subclass one and run pytest.

They are the same for every implementation, ours and yours: `adapters.AdapterSuite`,
`adapters.RedeliveringLogSuite` and `adapters.QueueSuite`, `trackers.LogTrackerSuite`,
`trackers.QueueTrackerSuite`, and `stores.StoreSuite`.
"""
