"""One server for a test: it costs a thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.schema_registry.registry_server import RegistryServer, running


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    """A registry with one Avro schema, 7."""
    with running() as registry:
        registry.add(7, '"string"')
        yield registry
