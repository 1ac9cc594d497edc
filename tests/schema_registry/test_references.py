"""Schemas that import others."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_sdk.errors import SchemaRegistryError
from consumer_sdk.schema_registry import SchemaRegistry, avro_schema, imported_files
from tests.schema_registry.registry_server import RegistryServer


def record(name: str, *types: Any) -> dict[str, Any]:
    """A record with a field for each type."""
    fields = [{"name": f"f{at}", "type": each} for at, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def reference(name: str, version: int = 1) -> dict[str, Any]:
    """To the subject of the same name."""
    return {"name": name, "subject": name, "version": version}


def test_types_of_other_subjects_are_written_in_once(server: RegistryServer) -> None:
    """Where they stand first, also within each other; a default stays as it is."""
    item = record("shop.Item", "string")
    server.add(1, item, subject="shop.Item")
    box = record("Box", {"type": "array", "items": "Item"}) | {"namespace": "shop"}
    server.add(2, box, subject="shop.Box", references=[reference("shop.Item")])
    order = record("shop.Order", ["null", "Box"], "shop.Item", {"type": "map", "values": "Box"})
    order["fields"][1]["default"] = "Item"
    server.add(3, order, references=[reference("shop.Box"), reference("shop.Item")])
    registry = SchemaRegistry(server.url)
    found = avro_schema(registry, registry.version("orders-value"))
    whole = box | {"fields": [{"name": "f0", "type": {"type": "array", "items": item}}]}
    assert [field["type"] for field in found["fields"]] == [
        ["null", whole],
        "shop.Item",
        {"type": "map", "values": "Box"},
    ]
    assert found["fields"][1]["default"] == "Item"


def test_a_circle_of_imports_ends(server: RegistryServer) -> None:
    """Each is asked for once."""
    for name, other in (("a", "b"), ("b", "a")):
        server.add(
            ord(name),
            "",
            kind="PROTOBUF",
            subject=name,
            references=[reference(other)],
            serialized=name.encode(),
        )
    registry = SchemaRegistry(server.url)
    found = imported_files(registry, registry.version("a", serialized=True))
    assert found == {"a": b"a", "b": b"b"}


def test_an_import_that_is_gone_is_no_unknown_schema(server: RegistryServer) -> None:
    """The value that needs it is not to blame."""
    server.add(3, record("O", "shop.Item"), references=[reference("shop.Item")])
    registry = SchemaRegistry(server.url)
    with pytest.raises(SchemaRegistryError, match="imports is gone") as caught:
        avro_schema(registry, registry.schema(3))
    assert not isinstance(caught.value, LookupError)


@pytest.mark.parametrize(
    "kind,text,what",
    [("JSON", "{}", "is JSON and not AVRO"), ("AVRO", "{", "no JSON"), ("AVRO", "[" * 4000, "no")],
)
def test_what_is_no_avro_is_refused(
    server: RegistryServer, kind: str, text: str, what: str
) -> None:
    """A typed error."""
    server.add(3, text, kind=kind)
    registry = SchemaRegistry(server.url)
    with pytest.raises(SchemaRegistryError, match=what):
        avro_schema(registry, registry.schema(3))


def test_protobuf_source_instead_of_a_serialized_file_is_told_apart(
    server: RegistryServer,
) -> None:
    """Some registries do not know that form."""
    server.add(3, 'syntax = "proto3";', kind="PROTOBUF", subject="a", serialized=b"x")
    server.add(4, "", kind="PROTOBUF", references=[reference("a")], serialized=b"y")
    registry = SchemaRegistry(server.url)
    schema = registry.schema(4, serialized=True)
    server.next.append((200, b'{"schema": "syntax = 3;", "schemaType": "PROTOBUF"}', {}))
    with pytest.raises(SchemaRegistryError, match="format=serialized"):
        imported_files(registry, schema)
