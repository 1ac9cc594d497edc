"""Kafka's security settings."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.pull.options.kafka_security import (
    check_security,
    credentials,
    tls_context,
)

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SASL = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
TLS = {"kafka.security.protocol": "SSL"}


@pytest.mark.parametrize(
    "mechanism, jaas, user, password",
    [
        ("PLAIN", f'{PLAIN} required username="etl" password="p w;";', "etl", "p w;"),
        ("PLAIN", f"{PLAIN} required username=etl password='x\"y';", "etl", 'x"y'),
        ("PLAIN", f'{PLAIN} required\n  password="a\\"b\\\\c"\n  username="e" ;\n', "e", 'a"b\\c'),
        ("SCRAM-SHA-256", f'{SCRAM} required username="e" password="p";', "e", "p"),
        ("SCRAM-SHA-512", f'{SCRAM} required username="e" password="p" tokenauth="no";', "e", "p"),
        ("PLAIN", f'kafkashaded.{PLAIN} required username="e" password="";', "e", ""),
    ],
)
def test_user_and_password_are_read_from_jaas(
    mechanism: str, jaas: str, user: str, password: str
) -> None:
    """As Java's client reads them: quoted, escaped, in any order, over several lines."""
    check_security({**SASL, "kafka.sasl.mechanism": mechanism, "kafka.sasl.jaas.config": jaas})
    assert credentials(mechanism, jaas) == {
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


def test_the_whole_jaas_or_its_password_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 22: then nothing secret travels with the plan."""
    monkeypatch.setenv("PULL_PASSWORD", "s3cret")
    jaas = f'{PLAIN} required username="etl" password="env:PULL_PASSWORD";'
    monkeypatch.setenv("PULL_JAAS", jaas)
    check_security({**SASL, "kafka.sasl.jaas.config": "env:PULL_JAAS"})
    assert "s3cret" in credentials("PLAIN", "env:PULL_JAAS").values()
    assert "s3cret" in credentials("PLAIN", jaas).values()


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol='TLS'.*SASL_SSL"),
        ({"kafka.sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism='GSSAPI'.*PLAIN, SCRAM"),
        ({"kafka.sasl.mechanism": "OAUTHBEARER"}, "saslTokenProvider=package.module"),
        ({"kafka.sasl.mechanism": "AWS_MSK_IAM"}, "OAUTHBEARER and saslTokenProvider"),
        ({}, "needs kafka.sasl.jaas.config"),
        ({"kafka.sasl.jaas.config": "s3cret"}, "cannot be read"),
        ({"kafka.sasl.jaas.config": f'{PLAIN} required username="s3cret'}, "cannot be read"),
        ({"kafka.sasl.jaas.config": f'{PLAIN} required s3cret username="e" password="p";'}, "read"),
        ({"kafka.sasl.jaas.config": f'{SCRAM} required password="s3cret";'}, "wants PlainLogin"),
        ({"kafka.sasl.jaas.config": f'{PLAIN} required password="s3cret";'}, "lacks a username"),
    ],
)
def test_wrong_sasl_settings_show_no_secret(changes: dict[str, str], complaint: str) -> None:
    """Trap 22: what is wrong is said without the value."""
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        check_security({**SASL, **changes})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"kafka.ssl.truststore.location": "/etc/trust.jks"},
        {"kafka.ssl.truststore.location": "/etc/trust"},
        {"kafka.ssl.truststore.location": "/etc/ca.pem", "kafka.ssl.truststore.type": "JKS"},
        {"kafka.ssl.keystore.location": "/etc/key.p12", "kafka.ssl.keystore.type": "PKCS12"},
    ],
)
def test_java_key_stores_are_refused_with_the_way_out(settings: dict[str, str]) -> None:
    """They can be exported."""
    with pytest.raises(ConfigurationError, match=r"Java key store.*openssl pkcs12.*type=PEM"):
        check_security(TLS | settings)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key under a password and its certificate, in one file."""
    folder = tmp_path_factory.mktemp("pem")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=etl"]
    command += ["-passout", "pass:s3cret", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_text(key.read_text() + cert.read_text(), encoding="utf-8")
    return both


def test_pem_files_make_a_context(pem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Authorities, key and certificate; the host is checked unless it is said not to be."""
    monkeypatch.setenv("PULL_KEY_PASSWORD", "s3cret")
    settings = {
        **TLS,
        "kafka.ssl.truststore.location": str(pem.with_name("cert.pem")),
        "kafka.ssl.keystore.location": str(pem),
        "kafka.ssl.key.password": "env:PULL_KEY_PASSWORD",
    }
    check_security(settings)
    context = tls_context(settings)
    assert "commonName', 'etl'" in str(context.get_ca_certs()[0]["subject"])
    assert context.check_hostname
    assert not tls_context(
        {**settings, "kafka.ssl.endpoint.identification.algorithm": ""}
    ).check_hostname


@pytest.mark.parametrize("separator", ["\n", " "])
def test_a_key_may_be_given_as_text(
    pem: Path, monkeypatch: pytest.MonkeyPatch, separator: str
) -> None:
    """As Kafka's PEM key store has it, also without line breaks; or as the name of one."""
    key, cert = ((pem.parent / f"{n}.pem").read_text() for n in ("key", "cert"))
    monkeypatch.setenv("PULL_KEY", key.replace("\n", separator))
    settings = {
        **TLS,
        "kafka.ssl.keystore.key": "env:PULL_KEY",
        "kafka.ssl.keystore.certificate.chain": cert.replace("\n", separator),
        "kafka.ssl.truststore.certificates": cert.replace("\n", separator),
        "kafka.ssl.key.password": "s3cret",
    }
    check_security(settings)
    assert len(tls_context(settings).get_ca_certs()) == 1
    with pytest.raises(ConfigurationError, match=r"no TLS with .*keystore\.key") as caught:
        tls_context(settings | {"kafka.ssl.key.password": "wr0ng"})
    assert "wr0ng" not in str(caught.value)


def test_certificates_may_be_given_as_text(pem: Path) -> None:
    """As Kafka's PEM trust store has it."""
    text = pem.with_name("cert.pem").read_text()
    context = tls_context(TLS | {"kafka.ssl.truststore.certificates": text})
    assert len(context.get_ca_certs()) == 1
    assert context.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize("password", [None, "wr0ng"])
def test_a_wrong_key_password_is_not_shown(pem: Path, password: str | None) -> None:
    """Nor is it asked for at a terminal when it is missing."""
    settings = {**TLS, "kafka.ssl.keystore.location": str(pem)}
    if password:
        settings["kafka.ssl.key.password"] = password
    with pytest.raises(ConfigurationError, match=r"no TLS with .*both\.pem") as caught:
        tls_context(settings)
    assert "wr0ng" not in str(caught.value)


def test_a_missing_file_is_named() -> None:
    """It is looked for where the connection is made: on each executor."""
    settings = TLS | {"kafka.ssl.truststore.location": "/absent/ca.pem"}
    check_security(settings)
    with pytest.raises(ConfigurationError, match=r"/absent/ca\.pem"):
        tls_context(settings)
