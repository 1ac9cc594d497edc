"""The Kafka that all tests share: it evicts in a moment, compacts soon, and asks for passwords at one port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.testing.servers.ports import HOST, free_ports

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KafkaServer

__all__ = ["LISTENER", "shared_kafka"]

LISTENER = "SASL"
"""Of the port where Alice may enter with the password "secret"."""


def shared_kafka() -> KafkaServer:
    """Not started yet."""
    from consumer_sdk.testing.servers import KafkaServer

    clients, sasl, controller = free_ports(3)
    return KafkaServer(port=clients, properties=_with_sasl(clients, sasl, controller))


def _with_sasl(clients: int, sasl: int, controller: int) -> dict[str, object]:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    tokens = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    listeners = f"PLAINTEXT://{HOST}:{clients},{LISTENER}://{HOST}:{sasl}"
    return {
        "log.cleaner.backoff.ms": 100,
        # Members of the consumer protocol hear soon of what is taken or given, and are lost late.
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 100,
        "group.consumer.assignment.interval.ms": 0,
        "group.consumer.min.session.timeout.ms": 1_000,
        "group.consumer.session.timeout.ms": 30_000,
        "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:SASL_PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": f'{login} required user_alice="secret";',
        # Takes tokens that nobody has signed.
        f"listener.name.{LISTENER.lower()}.oauthbearer.sasl.jaas.config": f"{tokens} required;",
    }
