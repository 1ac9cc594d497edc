"""Destinations of dead letters, under one contract (`consumer_sdk.abc.DeadLetters`).

Importing this package imports no client: each destination is imported when it is first used. The one in
memory is in `consumer_sdk.testing.memory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from consumer_sdk.adapters.kafka.dead_letters import KafkaDeadLetters
    from consumer_sdk.adapters.kinesis.dead_letters import KinesisDeadLetters
    from consumer_sdk.adapters.pulsar.dead_letters import PulsarDeadLetters
    from consumer_sdk.dead_letters.local import LocalDeadLetters, StoredLetter
    from consumer_sdk.records.letter_lines import decode_letter
    from consumer_sdk.testing.memory import MemoryDeadLetters

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
        "KafkaDeadLetters": "consumer_sdk.adapters.kafka.dead_letters",
        "KinesisDeadLetters": "consumer_sdk.adapters.kinesis.dead_letters",
        "LocalDeadLetters": "consumer_sdk.dead_letters.local",
        "MemoryDeadLetters": "consumer_sdk.testing.memory",
        "PulsarDeadLetters": "consumer_sdk.adapters.pulsar.dead_letters",
        "StoredLetter": "consumer_sdk.dead_letters.local",
        "decode_letter": "consumer_sdk.records.letter_lines",
    },
)
