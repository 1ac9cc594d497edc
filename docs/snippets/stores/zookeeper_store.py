"""Keeps the checkpoints of a Kafka group in ZooKeeper."""

from consumer_sdk import Consumer
from consumer_sdk.adapters import KafkaAdapter
from consumer_sdk.stores import ZooKeeperStore

consumer = Consumer(
    KafkaAdapter("orders", bootstrap_servers="127.0.0.1:9092", group="billing"),
    store=ZooKeeperStore("zk1:2181,zk2:2181,zk3:2181"),
)
