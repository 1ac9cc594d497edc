"""Schemas with what they import from the registry: Avro written out as one schema, Protobuf as serialized files.

Neither needs a compiler for the schema's source.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from consumer_sdk.errors import SchemaRegistryError, UnknownSchemaError
from consumer_sdk.schema_registry.answers import Reference, RegisteredSchema
from consumer_sdk.schema_registry.registry import SchemaRegistry

__all__ = ["avro_schema", "imported_files", "serialized_file"]

_MOST = 500
"""Schemas that one schema may import, also indirectly."""


def avro_schema(registry: SchemaRegistry, schema: RegisteredSchema) -> Any:
    """A schema as Python values; the first mention of a type that it imports is its definition.

    Raises:
        SchemaRegistryError: as `SchemaRegistry.schema`; or something is no Avro schema.
    """
    others = {name: _read(each) for name, each in _imported(registry, schema).items()}
    try:
        return _Writer(others).written(_read(schema), "")
    except RecursionError as error:
        raise SchemaRegistryError("the registry's Avro schema is nested too deeply") from error


def _read(schema: RegisteredSchema) -> Any:
    if schema.kind != "AVRO":
        raise SchemaRegistryError(f"the schema is {schema.kind} and not AVRO")
    try:
        return json.loads(schema.text)
    except (ValueError, RecursionError) as error:
        raise SchemaRegistryError(f"the registry's Avro schema is no JSON: {error}") from error


_TYPES = {"type", "items", "values"}
"""Keys of an Avro schema that hold other schemas."""


class _Writer:
    """Replaces the first mention of each imported type by its definition."""

    def __init__(self, others: Mapping[str, Any]) -> None:
        self._others = dict(others)

    def written(self, schema: Any, space: str) -> Any:
        if isinstance(schema, str):
            return self._definition(schema, space)
        if isinstance(schema, list):
            return [self.written(each, space) for each in schema]
        if not isinstance(schema, dict):
            return schema
        space = _space(schema, space)
        inner = {key: self.written(schema[key], space) for key in _TYPES & schema.keys()}
        if isinstance(schema.get("fields"), list):
            inner["fields"] = [self._field(each, space) for each in schema["fields"]]
        return schema | inner

    def _field(self, field: Any, space: str) -> Any:
        if not isinstance(field, dict) or "type" not in field:
            return field
        return field | {"type": self.written(field["type"], space)}

    def _definition(self, name: str, space: str) -> Any:
        for full in (f"{space}.{name}", name):
            if full in self._others:
                # A definition's own namespace is part of it: what stands around has no say.
                return self.written(self._others.pop(full), "")
        return name


def _space(schema: Mapping[str, Any], outer: str) -> str:
    name = schema.get("name")
    if not isinstance(name, str):
        return outer
    return name.rpartition(".")[0] or schema.get("namespace", outer)


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
    found = _imported(registry, schema, serialized=True)
    return {path: serialized_file(each) for path, each in found.items()}


# -- what is imported ----------------------------------------------------------------------


def _imported(
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
