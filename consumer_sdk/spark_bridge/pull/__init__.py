"""Spark pulls ranges of a broker's logs: ``format("consumer_sdk")`` on Kafka and Pulsar.

Decisions are pure and apart from what waits: `options` says what was asked for, `starts` where a
query begins, `admission` how far a batch goes, `planning` which task reads what, and `offsets` is
what Spark keeps of it in its checkpoint.
"""
