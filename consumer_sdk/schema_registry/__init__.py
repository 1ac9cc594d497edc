"""A schema registry with Confluent's interface: its schemas, and the heads of values that name them.

Needs nothing but the standard library: neither Spark nor a broker's client.
"""

from consumer_sdk.errors import (
    SchemaRegistryAccessError,
    SchemaRegistryError,
    TransientSchemaRegistryError,
    UnknownSchemaError,
)
from consumer_sdk.schema_registry.answers import Reference, RegisteredSchema
from consumer_sdk.schema_registry.references import avro_schema, imported_files, serialized_file
from consumer_sdk.schema_registry.registry import SchemaRegistry
from consumer_sdk.schema_registry.wire_format import read_message_indexes, read_schema_number

__all__ = [
    "Reference",
    "RegisteredSchema",
    "SchemaRegistry",
    "SchemaRegistryAccessError",
    "SchemaRegistryError",
    "TransientSchemaRegistryError",
    "UnknownSchemaError",
    "avro_schema",
    "imported_files",
    "read_message_indexes",
    "read_schema_number",
    "serialized_file",
]
