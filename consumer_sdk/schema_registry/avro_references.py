"""Avro schemas of a registry, with the types that they import written in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from consumer_sdk.errors import SchemaRegistryError
from consumer_sdk.schema_registry.answers import RegisteredSchema
from consumer_sdk.schema_registry.references import imported
from consumer_sdk.schema_registry.registry import SchemaRegistry

__all__ = ["avro_schema"]


def avro_schema(registry: SchemaRegistry, schema: RegisteredSchema) -> Any:
    """A schema as Python values; the first mention of a type that it imports is its definition.

    Raises:
        SchemaRegistryError: as `SchemaRegistry.schema`; or something is no Avro schema.
    """
    others = {name: _read(each) for name, each in imported(registry, schema).items()}
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


class _Writer:
    """Writes each definition once, where its name stands first."""

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


_TYPES = {"type", "items", "values"}


def _space(schema: Mapping[str, Any], outer: str) -> str:
    name = schema.get("name")
    if not isinstance(name, str):
        return outer
    return name.rpartition(".")[0] or schema.get("namespace", outer)
