"""``python -m benchmarks spark``: the pull source beside Spark's own Kafka source, and the feed.

`suite` starts a Kafka, fills a topic and runs the drivers, each a program of its own with one
Spark session (`session`): `throughput`, `trickle`, `feeding`, `writing`, `idling`, `memory`. `figures` makes
ratios of what they print.
"""
