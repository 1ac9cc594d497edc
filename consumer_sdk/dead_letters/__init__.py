"""Where records go that were given up: one contract (`consumer_sdk.abc.DeadLetters`).

Importing this package imports no client: each destination comes with its own module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.dead_letters.memory import MemoryDeadLetters
from consumer_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from consumer_sdk.dead_letters.kafka import KafkaDeadLetters
    from consumer_sdk.dead_letters.kinesis import KinesisDeadLetters
    from consumer_sdk.dead_letters.kinesis_form import decode_letter
    from consumer_sdk.dead_letters.local import LocalDeadLetters, StoredLetter
    from consumer_sdk.dead_letters.pulsar import PulsarDeadLetters

__all__ = [
    "KafkaDeadLetters",
    "KinesisDeadLetters",
    "LocalDeadLetters",
    "MemoryDeadLetters",
    "PulsarDeadLetters",
    "StoredLetter",
    "decode_letter",
]

__getattr__ = lazy_names(
    __name__,
    {
        "KafkaDeadLetters": "consumer_sdk.dead_letters.kafka",
        "KinesisDeadLetters": "consumer_sdk.dead_letters.kinesis",
        "LocalDeadLetters": "consumer_sdk.dead_letters.local",
        "PulsarDeadLetters": "consumer_sdk.dead_letters.pulsar",
        "StoredLetter": "consumer_sdk.dead_letters.local",
        "decode_letter": "consumer_sdk.dead_letters.kinesis_form",
    },
)
