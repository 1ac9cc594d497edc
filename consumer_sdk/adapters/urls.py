"""Opens an adapter from a URL, for command lines and configuration files."""

from __future__ import annotations

from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from consumer_sdk.abc import Adapter
from consumer_sdk.errors import ConfigurationError

__all__ = ["SCHEMES", "class_of", "open_url"]

SCHEMES = {
    "kafka": "consumer_sdk.adapters.kafka:KafkaAdapter",
    "kinesis": "consumer_sdk.adapters.kinesis:KinesisAdapter",
    "local": "consumer_sdk.adapters.local:LocalAdapter",
    "memory": "consumer_sdk.adapters.memory:MemoryAdapter",
    "pulsar": "consumer_sdk.adapters.pulsar:PulsarAdapter",
    "pulsar+ssl": "consumer_sdk.adapters.pulsar:PulsarAdapter",
}
"""URL scheme → ``module:class``; the class has a ``from_url``."""


def open_url(url: str) -> Adapter:
    """The adapter that ``url`` names, such as ``kafka://host:9092/orders?group=billing``.

    Raises:
        ConfigurationError: the scheme or an option is unknown, or the URL is malformed.
        MissingExtraError: the broker's client is not installed.
    """
    scheme = urlsplit(url).scheme
    if scheme not in SCHEMES:
        raise ConfigurationError(
            f"{url!r}: the scheme has to be one of {', '.join(sorted(SCHEMES))}"
        )
    adapter: Adapter = class_of(SCHEMES[scheme], scheme).from_url(url)
    return adapter


def class_of(path: str, scheme: str) -> Any:
    """The class at ``module:class``, imported only now, since it imports a broker's client.

    Raises:
        ConfigurationError: there is no such module here.
        MissingExtraError: the broker's client is not installed.
    """
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ConfigurationError(f"{scheme}:// is not available here") from error
