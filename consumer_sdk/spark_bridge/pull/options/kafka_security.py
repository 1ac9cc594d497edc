"""Kafka's security settings, as Java's client has them, for a Python client."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.option_values import choice, secret

if TYPE_CHECKING:
    import ssl

__all__ = [
    "JAAS",
    "OAUTH",
    "SECURITY",
    "TLS",
    "TOKENS",
    "check_security",
    "credentials",
    "secured",
    "security_of",
    "tls_context",
]

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
"""SASL mechanism → the login module that has its user and password."""

PROTOCOL = "kafka.security.protocol"
MECHANISM = "kafka.sasl.mechanism"
JAAS = "kafka.sasl.jaas.config"
TOKENS = "saslTokenProvider"
"""An option of this source: Java's are classes."""
OAUTH = "OAUTHBEARER"
TRUST = "kafka.ssl.truststore.location"
TRUST_TEXT = "kafka.ssl.truststore.certificates"
KEYS = "kafka.ssl.keystore.location"
KEY_TEXT = "kafka.ssl.keystore.key"
CHAIN_TEXT = "kafka.ssl.keystore.certificate.chain"
KEY_PASSWORD = "kafka.ssl.key.password"  # noqa: S105 - an option's name
HOST_CHECK = "kafka.ssl.endpoint.identification.algorithm"
TLS = (
    *(TRUST, TRUST_TEXT, "kafka.ssl.truststore.type", "kafka.ssl.truststore.password"),
    *(
        KEYS,
        KEY_TEXT,
        CHAIN_TEXT,
        KEY_PASSWORD,
        "kafka.ssl.keystore.type",
        "kafka.ssl.keystore.password",
        HOST_CHECK,
    ),
)
"""Options of TLS; the passwords of stores mean nothing for PEM files."""
SECURITY = (PROTOCOL, MECHANISM, JAAS, *TLS)

PEM = (".pem", ".crt", ".cer", ".cert")
BLOCK = re.compile(r"(-----BEGIN [A-Z ]+-----)([A-Za-z0-9+/=\s]*)(-----END [A-Z ]+-----)")
MODULE = re.compile(
    r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\s+(.*?)\s*;\s*", re.DOTALL
)
PAIR = re.compile(r"""\s*(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))""")
FORM = (
    "org.apache.kafka.common.security.plain.PlainLoginModule (or …scram.ScramLoginModule) "
    'required username="…" password="…";'
)


def check_security(options: Mapping[str, str]) -> None:
    """Finds what can be known to be wrong before a connection is made.

    Raises:
        ConfigurationError: a setting is wrong, or has no counterpart here.
    """
    protocol = choice(PROTOCOL, options.get(PROTOCOL, "PLAINTEXT"), PROTOCOLS)
    if protocol.startswith("SASL"):
        _check_login(options, protocol)
    if protocol.endswith("SSL"):
        _check_store(options, TRUST, "kafka.ssl.truststore.type")
        _check_store(options, KEYS, "kafka.ssl.keystore.type")
        choice(HOST_CHECK, options.get(HOST_CHECK, "https").lower(), ("https", ""))


def _check_login(options: Mapping[str, str], protocol: str) -> None:
    mechanism = options.get(MECHANISM, "GSSAPI")
    if mechanism in (OAUTH, "AWS_MSK_IAM"):
        if mechanism != OAUTH or TOKENS not in options:
            raise ConfigurationError(
                f"{MECHANISM}={mechanism}: give {MECHANISM}={OAUTH} and {TOKENS}="
                f"package.module:function, which returns a token (of MSK, "
                f"aws_msk_iam_sasl_signer's); Java's callback handlers do not run here"
            )
        return
    choice(MECHANISM, mechanism, (*MODULES, OAUTH))
    if JAAS not in options:
        raise ConfigurationError(f"{PROTOCOL}={protocol} needs {JAAS}: {FORM}")
    if not _is_reference(options[JAAS]):
        _login(mechanism, options[JAAS])


def _is_reference(text: str) -> bool:
    return text.startswith(("env:", "file:"))


def _check_store(options: Mapping[str, str], location: str, kind: str) -> None:
    path = options.get(location, "")
    is_pem = options.get(kind, "PEM" if not path or path.endswith(PEM) else "JKS") == "PEM"
    if not is_pem:
        raise ConfigurationError(
            f"{location}={path!r}: a Java key store cannot be read here: export it as PEM "
            f"(keytool -importkeystore … -deststoretype PKCS12, then openssl pkcs12 -in … -out "
            f"….pem), and give that file with {kind}=PEM"
        )


def credentials(mechanism: str, jaas: str) -> dict[str, str]:
    """User and password as the client takes them; looks up what ``env:`` and ``file:`` name.

    Raises:
        ConfigurationError: something is not there.
    """
    user, password = _login(mechanism, secret(JAAS, jaas))
    return {
        "sasl_plain_username": secret(f"{JAAS} username", user),
        "sasl_plain_password": secret(f"{JAAS} password", password),
    }


def _login(mechanism: str, jaas: str) -> tuple[str, str]:
    """User and password of a JAAS configuration; no error shows any of it."""
    found = MODULE.fullmatch(jaas)
    module = found[1].rpartition(".")[2] if found else ""
    if not found or PAIR.sub("", found[2]).strip():
        raise ConfigurationError(f"{JAAS} cannot be read: give {FORM}")
    if module != MODULES[mechanism]:
        raise ConfigurationError(
            f"{JAAS} has another login module than {MECHANISM}={mechanism} "
            f"wants {MODULES[mechanism]}: give {FORM}"
        )
    pairs = {name: _unquoted(*values) for name, *values in PAIR.findall(found[2])}
    if not {"username", "password"} <= pairs.keys():
        raise ConfigurationError(f"{JAAS} lacks a username or a password: give {FORM}")
    return pairs["username"], pairs["password"]


def _unquoted(double: str, single: str, bare: str) -> str:
    return re.sub(r"\\(.)", r"\1", double or single) or bare


def tls_context(options: Mapping[str, str]) -> ssl.SSLContext:
    """The context that the PEM files make; the system's authorities where none is given.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    import ssl

    location, text = options.get(TRUST), _pem(options.get(TRUST_TEXT, "")) or None
    try:
        context = ssl.create_default_context(cafile=location, cadata=text)
        if KEYS in options:
            context.load_cert_chain(options[KEYS], password=_key_password(options))
        elif KEY_TEXT in options:
            _load_texts(context, options)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        files = [repr(options[name]) for name in (TRUST, KEYS) if name in options]
        files += [name for name in (TRUST_TEXT, KEY_TEXT) if name in options]
        raise ConfigurationError(f"no TLS with {', '.join(files)}: {error}; give PEM") from error
    context.check_hostname = options.get(HOST_CHECK, "https").lower() == "https"
    return context


def _load_texts(context: ssl.SSLContext, options: Mapping[str, str]) -> None:
    """Key and certificates that are options; OpenSSL takes them from files alone."""
    text = f"{_pem(secret(KEY_TEXT, options[KEY_TEXT]))}\n{_pem(options.get(CHAIN_TEXT, ''))}\n"
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # nobody else may read it
        file.write(text)
        file.flush()
        context.load_cert_chain(file.name, password=_key_password(options))


def _pem(text: str) -> str:
    """With the line breaks that a file of properties does not have, and OpenSSL needs."""
    return BLOCK.sub(lambda found: "\n".join((found[1], *found[2].split(), found[3])), text)


def _key_password(options: Mapping[str, str]) -> Any:
    # Not None: OpenSSL would ask at the terminal.
    return secret(KEY_PASSWORD, options.get(KEY_PASSWORD, ""))


def security_of(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The settings for `secured`, as they were given."""
    return tuple((name, options[name]) for name in sorted((*SECURITY, TOKENS)) if name in options)


def secured(security: Mapping[str, str]) -> dict[str, Any]:
    """The client's options of the protocol, of SASL and of TLS; secrets are looked up.

    Raises:
        ConfigurationError: a secret or file cannot be read.
    """
    protocol = security.get(PROTOCOL, "PLAINTEXT")
    found: dict[str, Any] = {"security_protocol": protocol}
    if protocol.startswith("SASL"):
        found["sasl_mechanism"] = security[MECHANISM]
        found |= _authentication(security)
    if protocol.endswith("SSL"):
        found["ssl_context"] = tls_context(security)
    return found


def _authentication(security: Mapping[str, str]) -> dict[str, Any]:
    if security[MECHANISM] != OAUTH:
        return credentials(security[MECHANISM], security[JAAS])
    from consumer_sdk.adapters.kafka.client.token_providers import token_provider

    return {"sasl_oauth_token_provider": token_provider(security[TOKENS])}
