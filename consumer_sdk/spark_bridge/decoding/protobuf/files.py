"""Protobuf descriptors: a set of files, and one message in it. No Spark.

Each set has a pool of its own, so that two versions of a file can be used in one process.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from consumer_sdk.errors import ConfigurationError, SchemaRegistryError
from consumer_sdk.schema_registry import SchemaRegistry, imported_files, serialized_file

__all__ = ["Descriptors", "MessageType", "message_at", "message_type", "registered_type"]

Descriptors: TypeAlias = bytes | str | Path
"""A serialized ``FileDescriptorSet``, or the path of one: ``protoc --include_imports -o``."""

_GOOGLES = re.compile(r"google/protobuf/[a-z_]+\.proto")


@dataclass(frozen=True, slots=True)
class MessageType:
    """A message of a set of files. It may be pickled.

    Attributes:
        files: a serialized ``FileDescriptorSet``.
        name: the message's full name.
    """

    files: bytes
    name: str

    def message_class(self) -> type[Message]:
        """The class of its values, made anew.

        Raises:
            ConfigurationError: the files do not fit each other.
        """
        descriptor = _pool(_read(self.files)).FindMessageTypeByName(self.name)
        found: type[Message] = GetMessageClass(descriptor)
        return found


def message_type(descriptors: Descriptors, name: str) -> MessageType:
    """A message by its full name, or by its own if only one message has that.

    Raises:
        ConfigurationError: the set cannot be read, or has no such message.
    """
    data = descriptors if isinstance(descriptors, bytes) else _contents(descriptors)
    files = _read(data)
    _pool(files)
    return MessageType(data, _full_name(files, name))


def registered_type(registry: SchemaRegistry, subject: str, name: str | None) -> MessageType:
    """A message of a subject's latest schema; the first one, if no name is given.

    Raises:
        ConfigurationError: the schema has no such message.
        SchemaRegistryError: the schema cannot be had.
    """
    schema = registry.version(subject, serialized=True)
    own = _file(serialized_file(schema), "")
    others = [_file(data, path) for path, data in imported_files(registry, schema).items()]
    files = FileDescriptorSet(file=[*others, own])
    _pool(files)
    found = _full_name(files, name) if name else message_at(own.SerializeToString(), (0,))
    return MessageType(files.SerializeToString(), found)


def message_at(data: bytes, indexes: tuple[int, ...]) -> str:
    """The full name of the message that the indexes of a value's head mean.

    Args:
        data: a serialized file.

    Raises:
        LookupError: the file has no such message.
        SchemaRegistryError: it is no file.
    """
    file = _file(data, "")
    names = [file.package] if file.package else []
    messages = file.message_type
    for index in indexes:
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def _file(data: bytes, path: str) -> FileDescriptorProto:
    """A registry's file under the path that others import it by."""
    try:
        file = FileDescriptorProto.FromString(data)
    except DecodeError as error:
        raise SchemaRegistryError(f"the registry's file {path!r} is no descriptor") from error
    file.name = path or "registered.proto"
    return file


def _contents(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"descriptors={str(path)!r}: {error.strerror}") from error


def _read(data: bytes) -> FileDescriptorSet:
    try:
        found = FileDescriptorSet.FromString(data)
    except DecodeError as error:
        raise ConfigurationError(
            f"descriptors: this is no serialized FileDescriptorSet: {error}"
        ) from error
    if not found.file:
        raise ConfigurationError("descriptors: the FileDescriptorSet is empty")
    return found


def _pool(files: FileDescriptorSet) -> Any:
    """The files as a pool, each after what it imports; Google's own need not be in the set."""
    known = {file.name: file for file in files.file}
    for name in {each for file in files.file for each in file.dependency} - known.keys():
        _add_googles(known, name)
    pool = DescriptorPool()
    try:
        for name in TopologicalSorter({n: f.dependency for n, f in known.items()}).static_order():
            pool.Add(known[name])
    except (CycleError, KeyError) as error:
        raise ConfigurationError(
            f"descriptors: an import is not in the set: {error}; protoc needs --include_imports"
        ) from error
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"descriptors: {error}") from error
    return pool


def _add_googles(known: dict[str, FileDescriptorProto], name: str) -> None:
    if name in known or not _GOOGLES.fullmatch(name):
        return
    module_name = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError:
        return  # the sorter misses it
    file = known[name] = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    for other in file.dependency:
        _add_googles(known, other)


def _full_name(files: FileDescriptorSet, name: str) -> str:
    full = sorted({each for file in files.file for each in _names(file.message_type, file.package)})
    if name in full:
        return name
    found = [each for each in full if each.rpartition(".")[2] == name]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(found or full[:20])
    raise ConfigurationError(f"message={name!r}: give the full name of one of {listed}")


def _names(messages: Any, space: str) -> list[str]:
    found = []
    for message in messages:
        full = f"{space}.{message.name}".lstrip(".")
        found += [full, *_names(message.nested_type, full)]
    return found
