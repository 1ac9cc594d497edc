"""Protobuf schemas of a registry: serialized files, without a compiler for their source."""

from __future__ import annotations

import base64
import binascii

from consumer_sdk.errors import SchemaRegistryError
from consumer_sdk.schema_registry.answers import RegisteredSchema
from consumer_sdk.schema_registry.references import imported
from consumer_sdk.schema_registry.registry import SchemaRegistry

__all__ = ["imported_files", "serialized_file"]


def serialized_file(schema: RegisteredSchema) -> bytes:
    """The serialized ``FileDescriptorProto`` of a schema that was asked for as such.

    Raises:
        SchemaRegistryError: the schema is no Protobuf, or the registry answered with its source.
    """
    if schema.kind != "PROTOBUF":
        raise SchemaRegistryError(f"the schema is {schema.kind} and not PROTOBUF")
    try:
        return base64.b64decode(schema.text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SchemaRegistryError(
            "the registry answered with Protobuf source: it does not know ?format=serialized"
        ) from error


def imported_files(registry: SchemaRegistry, schema: RegisteredSchema) -> dict[str, bytes]:
    """The serialized files that a schema imports, also indirectly, by their paths.

    Google's own files (``google/protobuf/…``) are not among them: no registry has them.

    Raises:
        SchemaRegistryError: as `SchemaRegistry.schema`, or one is no Protobuf.
    """
    found = imported(registry, schema, serialized=True)
    return {path: serialized_file(each) for path, each in found.items()}
