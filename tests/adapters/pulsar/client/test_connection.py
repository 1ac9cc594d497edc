"""The connection's options, as the native client shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consumer_sdk.adapters.pulsar.client.connection import Connection
from consumer_sdk.errors import ConfigurationError

URL = "pulsar://h:6650"


def test_options_reach_the_native_client(tmp_path: Path) -> None:
    """Read back from it; its timeout is in whole seconds."""
    trusted = tmp_path / "ca.pem"
    trusted.write_text("", encoding="utf-8")
    made = Connection(
        service_url="pulsar+ssl://h:6651",
        tls_trust_certs=str(trusted),
        tls_validate_hostname=False,
        operation_timeout=7.2,
        connect_timeout=0.5,
        io_threads=2,
        listener_name="inside",
        log_file=str(tmp_path / "log"),
    )._configuration()
    assert made.operation_timeout_seconds() == 7
    assert made.connection_timeout() == 500
    assert made.io_threads() == 2


@pytest.mark.parametrize(
    "options, kind",
    [
        ({}, "NoneType"),
        ({"token": "t"}, "AuthenticationToken"),
        ({"tls_certificate": __file__, "tls_key": __file__}, "AuthenticationTLS"),
        ({"oauth2": {"issuer_url": "http://i", "private_key": "/k"}}, "AuthenticationOauth2"),
    ],
)
def test_way_to_authenticate_is_the_one_that_was_given(options: dict[str, Any], kind: str) -> None:
    """At most one."""
    connection = Connection(service_url=URL, **options)
    assert type(connection._authentication()).__name__ == kind


@pytest.mark.parametrize(
    "options, message",
    [
        ({"service_url": "h:6650"}, "pulsar://host:port"),
        ({"service_url": "http://h:8080"}, "pulsar://host:port"),
        ({"service_url": "pulsar://"}, "pulsar://host:port"),
        ({"service_url": "pulsar://me:pw@h:1"}, "pulsar://host:port"),
        ({"operation_timeout": 0}, "operation_timeout=0"),
        ({"operation_timeout": float("nan")}, "operation_timeout=nan"),
        ({"operation_timeout": float("inf")}, "operation_timeout=inf"),
        ({"connect_timeout": "5"}, "connect_timeout='5'"),
        ({"io_threads": 0}, "io_threads=0"),
        ({"tls_key": __file__}, "both of tls_certificate and tls_key"),
        ({"tls_key": "/none", "tls_certificate": __file__}, "tls_key='/none': there is no such"),
        ({"tls_trust_certs": "/none"}, "tls_trust_certs='/none': there is no such file"),
        ({"token": "t", "oauth2": {}}, "one of token"),
        ({"log_level": "loud"}, "'debug', 'info', 'warn' or 'error'"),
    ],
)
def test_option_that_cannot_work_is_an_error(options: dict[str, Any], message: str) -> None:
    """When it is built; the client would find out at the first message, or retry for ever."""
    with pytest.raises(ConfigurationError, match=message):
        Connection(**{"service_url": URL} | options)


def test_secrets_are_in_no_repr() -> None:
    """It ends up in logs."""
    shown = repr(Connection(service_url=URL, token="secret"))  # noqa: S106 - no real one
    shown += repr(Connection(service_url=URL, oauth2={"private_key": "secret"}))
    assert "secret" not in shown
