"""What the decoders are told of a registry."""

from __future__ import annotations

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.schema_registry import SchemaRegistry

__all__ = ["registry_of"]


def registry_of(
    registry: SchemaRegistry | str | None, subject: str | None, *, has_schema: bool
) -> SchemaRegistry | None:
    """The registry that was named.

    Raises:
        ConfigurationError: its URL is none, or a subject does not belong here.
    """
    if subject is not None and (registry is None or has_schema):
        raise ConfigurationError(
            f"subject={subject!r}: it says which schema of registry= is the reader's, where none is given"
        )
    return SchemaRegistry.from_url(registry) if isinstance(registry, str) else registry
