"""Charges orders in a loop over pulsar-client. It runs until Ctrl-C."""

import json
import os

import pulsar

PULSAR = os.environ.get("PULSAR", "pulsar://127.0.0.1:6650")

client = pulsar.Client(PULSAR, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
consumer = client.subscribe(
    "from-pulsar-client",
    "billing",
    consumer_type=pulsar.ConsumerType.Shared,
    initial_position=pulsar.InitialPosition.Earliest,
    dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(max_redeliver_count=4),
)
try:
    while True:
        message = consumer.receive()
        try:
            order = json.loads(message.data())
            print(f"charged {order['customer']} {order['amount']}", flush=True)
        except Exception:  # noqa: BLE001  whatever it is, the order comes again
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
except (KeyboardInterrupt, pulsar.Interrupted):
    pass
finally:
    client.close()
