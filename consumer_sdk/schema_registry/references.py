"""What a registered schema imports, and what that imports in turn."""

from __future__ import annotations

from consumer_sdk.errors import SchemaRegistryError, UnknownSchemaError
from consumer_sdk.schema_registry.answers import Reference, RegisteredSchema
from consumer_sdk.schema_registry.registry import SchemaRegistry

__all__ = ["imported"]

_MOST = 500


def imported(
    registry: SchemaRegistry, schema: RegisteredSchema, *, serialized: bool = False
) -> dict[str, RegisteredSchema]:
    """All that a schema needs, by the names that it is imported by; each once, also in a circle.

    Args:
        serialized: of Protobuf: serialized files instead of their sources.

    Raises:
        SchemaRegistryError: as `SchemaRegistry.schema`; or there are more than 500.
    """
    found: dict[str, RegisteredSchema] = {}
    waiting = list(schema.references)
    while waiting:
        reference = waiting.pop()
        if reference.name in found:
            continue
        if len(found) == _MOST:
            raise SchemaRegistryError(
                f"a schema of {registry.url} imports more than {_MOST} others"
            )
        one = _version(registry, reference, serialized=serialized)
        found[reference.name] = one
        waiting.extend(one.references)
    return found


def _version(
    registry: SchemaRegistry, reference: Reference, *, serialized: bool
) -> RegisteredSchema:
    try:
        return registry.version(reference.subject, reference.version, serialized=serialized)
    except UnknownSchemaError as error:
        # It is not the schema that was asked for which is unknown: no value is to blame.
        raise SchemaRegistryError(f"what a schema imports is gone: {error}") from error
