"""What importing the Kafka adapter says of the client that is installed."""

from __future__ import annotations

import pytest

from tests.adapters.test_urls import run_python


@pytest.mark.parametrize(
    "wanted", ["adapters.kafka import KafkaAdapter", "adapters.kafka import ranges"]
)
def test_client_that_is_too_old_is_an_error_that_names_its_version(wanted: str) -> None:
    """Not an ImportError from somewhere inside."""
    code = (
        "import sys, aiokafka.protocol.api as api; del api.RequestStruct\n"
        "sys.modules.pop('aiokafka.protocol.metadata', None)\n"
        "from consumer_sdk.errors import ConfigurationError\n"
        f"try: from consumer_sdk.{wanted}\n"
        "except ConfigurationError as error: print(error)"
    )
    assert "is not supported" in run_python(code)
