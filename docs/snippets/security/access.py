"""How each broker and store is told who a consumer is. Each function shows one way."""

import ssl
from collections.abc import Callable

from aiokafka.abc import AbstractTokenProvider
from kazoo.security import CREATOR_ALL_ACL

from consumer_sdk.adapters import KafkaAdapter, KinesisAdapter, PulsarAdapter
from consumer_sdk.stores import ZooKeeperStore


def kafka_password(servers: str, ca: str, user: str, password: str) -> KafkaAdapter:
    """A user and a password, inside TLS."""
    return KafkaAdapter(
        "orders",
        bootstrap_servers=servers,
        group="billing",
        security_protocol="SASL_SSL",
        ssl_context=ssl.create_default_context(cafile=ca),
        sasl_mechanism="PLAIN",
        sasl_plain_username=user,
        sasl_plain_password=password,
    )


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """Asks for a token whenever a connection needs one."""

    def __init__(self, fresh: Callable[[], str]) -> None:
        self.fresh = fresh

    async def token(self) -> str:
        """Called for each connection."""
        return self.fresh()


def kafka_token(servers: str, ca: str, fresh: Callable[[], str]) -> KafkaAdapter:
    """A token of OAUTHBEARER, inside TLS."""
    return KafkaAdapter(
        "orders",
        bootstrap_servers=servers,
        group="billing",
        security_protocol="SASL_SSL",
        ssl_context=ssl.create_default_context(cafile=ca),
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(fresh),
    )


def kafka_certificate(servers: str, ca: str, certificate: str, key: str) -> KafkaAdapter:
    """A client's certificate."""
    tls = ssl.create_default_context(cafile=ca)
    tls.load_cert_chain(certificate, key)
    return KafkaAdapter(
        "orders",
        bootstrap_servers=servers,
        group="billing",
        security_protocol="SSL",
        ssl_context=tls,
    )


def kinesis_authority(
    stream: str, endpoint: str, ca: str, key_id: str, secret: str
) -> KinesisAdapter:
    """Keys, and a certificate authority of one's own."""
    return KinesisAdapter(
        stream,
        group="billing",
        region_name="us-east-1",
        endpoint_url=endpoint,
        verify=ca,
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
    )


def pulsar_token(url: str, ca: str, token: Callable[[], str]) -> PulsarAdapter:
    """A token, inside TLS."""
    return PulsarAdapter(
        "guarded", service_url=url, subscription="billing", tls_trust_certs=ca, token=token
    )


def pulsar_certificate(url: str, ca: str, certificate: str, key: str) -> PulsarAdapter:
    """A client's certificate."""
    return PulsarAdapter(
        "guarded",
        service_url=url,
        subscription="billing",
        tls_trust_certs=ca,
        tls_certificate=certificate,
        tls_key=key,
    )


def zookeeper_certificate(hosts: str, ca: str, certificate: str, key: str) -> ZooKeeperStore:
    """A client's certificate."""
    return ZooKeeperStore(hosts, use_ssl=True, ca=ca, certfile=certificate, keyfile=key)


def zookeeper_password(hosts: str, user: str, password: str) -> ZooKeeperStore:
    """A user and a password; only that user may read what is written."""
    return ZooKeeperStore(
        hosts,
        sasl_options={"mechanism": "DIGEST-MD5", "username": user, "password": password},
        default_acl=CREATOR_ALL_ACL,
    )
