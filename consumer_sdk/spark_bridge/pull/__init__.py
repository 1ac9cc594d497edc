"""Spark pulls ranges of a broker's logs: ``format("consumer_sdk")`` on Kafka and Pulsar.

In the driver, Spark's source runner calls `stream_reader`, whose `run` answers: `planning` decides where
a micro-batch begins and ends and which task reads what, `ack_rule` decides when Spark has logged a
micro-batch as done, and `acks` tells the group and the store. In the workers, `reading` reads a task's
ranges into Arrow. Either side reaches the broker through `connections`.
"""
