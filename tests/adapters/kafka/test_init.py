"""What importing the Kafka adapter says of the client that is installed."""

from __future__ import annotations

from tests.adapters.test_urls import run_python


def test_client_that_is_too_old_is_an_error_that_names_its_version() -> None:
    """Not an ImportError from somewhere inside."""
    code = (
        "import sys, aiokafka.protocol.api as api; del api.RequestStruct\n"
        "sys.modules.pop('aiokafka.protocol.metadata', None)\n"
        "from consumer_sdk.errors import ConfigurationError\n"
        "try: import consumer_sdk.adapters.kafka\n"
        "except ConfigurationError as error: print(error)"
    )
    assert "is not supported" in run_python(code)
