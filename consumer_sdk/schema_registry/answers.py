"""Reads a registry's answers: each is a schema or a typed error, whatever was answered. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from consumer_sdk.errors import (
    SchemaRegistryAccessError,
    SchemaRegistryError,
    TransientSchemaRegistryError,
    UnknownSchemaError,
)

__all__ = ["Reference", "RegisteredSchema", "error_of", "read_schema"]

_UNKNOWN = {40401, 40402, 40403}
"""The registry's codes for a subject, a version and a schema that are not there."""
_PASSING = {408, 425, 429}
_NOT_IMPLEMENTED = 501
_LONGEST_QUOTE = 200


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one imports.

    Attributes:
        name: the name by which the other one imports it: the full name of an Avro type, the path of a ``.proto``.
        subject: the subject under which it is registered.
        version: the version of the subject.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry has it.

    Attributes:
        kind: ``"AVRO"``, ``"JSON"`` or ``"PROTOBUF"``.
        text: of the schema; of Protobuf the serialized file, in Base64.
        references: the schemas that it imports.
    """

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


def read_schema(body: bytes, asked: str) -> RegisteredSchema:
    """Reads the schema in a registry's answer.

    Args:
        asked: what was asked for, for errors.

    Raises:
        SchemaRegistryError: this is no registry's answer.
    """
    found = _object(body)
    kind, text = found.get("schemaType", "AVRO"), found.get("schema")
    if not isinstance(text, str) or not isinstance(kind, str):
        raise SchemaRegistryError(
            f"{asked}: the answer has no schema: {_quoted(body)}; is this a schema registry's URL?"
        )
    return RegisteredSchema(kind, text, _references(found.get("references") or (), asked))


def error_of(status: int, body: bytes, asked: str) -> SchemaRegistryError:
    """What an HTTP status other than 200 means.

    A 404 without the registry's own code is another server's, or another path's: if it passed for an
    unknown schema, a mistake in the URL would make every value a bad one.
    """
    said = f"{asked}: HTTP {status}: {_quoted(body)}"
    if status in {401, 403}:
        return SchemaRegistryAccessError(f"{said}; look at the credentials and what they may read")
    if status == 404 and _object(body).get("error_code") in _UNKNOWN:  # noqa: PLR2004 - not found
        return UnknownSchemaError(said)
    if status in _PASSING or (status >= 500 and status != _NOT_IMPLEMENTED):  # noqa: PLR2004 - the server's
        return TransientSchemaRegistryError(said)
    return SchemaRegistryError(f"{said}; is this a schema registry's URL?")


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _references(found: Any, asked: str) -> tuple[Reference, ...]:
    try:
        return tuple(_reference(each["name"], each["subject"], each["version"]) for each in found)
    except (KeyError, TypeError) as error:
        raise SchemaRegistryError(f"{asked}: the schema's references are malformed") from error


def _reference(name: object, subject: object, version: object) -> Reference:
    if not isinstance(name, str) or not isinstance(subject, str) or type(version) is not int:
        raise TypeError
    return Reference(name, subject, version)


def _quoted(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    return repr(text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "…")
