"""The client against a real HTTP server: credentials, outages, and answers of all sorts."""

from __future__ import annotations

import pickle
import socket
from pathlib import Path

import pytest

from consumer_sdk.errors import (
    ConfigurationError,
    SchemaRegistryAccessError,
    SchemaRegistryError,
    TransientSchemaRegistryError,
    UnknownSchemaError,
)
from consumer_sdk.schema_registry import Reference, RegisteredSchema, SchemaRegistry
from consumer_sdk.testing.servers import free_ports
from tests.schema_registry.registry_server import RegistryServer, basic, running


def quick(url: str, attempts: int = 3) -> SchemaRegistry:
    """A client that does not wait between its attempts."""
    return SchemaRegistry(url, attempts=attempts, retry_delay=0, max_bytes=10_000)


def test_a_schema_is_asked_for_once(server: RegistryServer) -> None:
    """What a number means never changes; another object of the same registry knows it too."""
    for _ in range(3):
        found = quick(server.url).schema(7)
    assert found == RegisteredSchema("AVRO", '"string"')
    assert server.asked == ["/schemas/ids/7"]


def test_the_latest_is_asked_for_each_time(server: RegistryServer) -> None:
    """It changes; a version does not. A subject may have any characters."""
    server.add(8, "bytes", kind="JSON", subject="a/b c", references=[])
    registry = quick(server.url + "/")
    assert registry.version("orders-value").text == '"string"'
    server.add(9, '"int"')
    assert registry.version("orders-value").text == '"int"'
    assert [registry.version("orders-value", 1).text for _ in range(2)] == ['"string"'] * 2
    assert len(server.asked) == 3
    with pytest.raises(UnknownSchemaError):
        registry.version("a/b c")  # this server does not decode it
    assert server.asked[-1] == "/subjects/a%2Fb%20c/versions/latest"


def test_references_and_kinds_are_read(server: RegistryServer) -> None:
    """As the real one writes them."""
    reference = {"name": "a.B", "subject": "b", "version": 2}
    server.add(3, "syntax", kind="PROTOBUF", references=[reference], serialized=b"\1\2")
    found = quick(server.url).schema(3, serialized=True)
    assert found == RegisteredSchema("PROTOBUF", "AQI=", (Reference("a.B", "b", 2),))


def test_an_unknown_schema_is_no_other_404(server: RegistryServer) -> None:
    """Else a wrong path would make every record a bad one."""
    with pytest.raises(UnknownSchemaError, match="Schema not found") as caught:
        quick(server.url).schema(404)
    assert isinstance(caught.value, LookupError)
    with pytest.raises(SchemaRegistryError, match="is this a schema registry's URL") as other:
        quick(server.url + "/elsewhere").schema(7)
    assert not isinstance(other.value, LookupError)


@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_outage_is_waited_out(server: RegistryServer, status: int) -> None:
    """And is an error of its own when it lasts."""
    registry = quick(server.url)
    server.next.extend([(status, b"", {})] * 2)
    assert registry.schema(7).text == '"string"'
    server.next.extend([(status, b"busy", {})] * 3)
    with pytest.raises(TransientSchemaRegistryError, match=f"HTTP {status}: 'busy'"):
        registry.version("orders-value")
    assert len(server.asked) == 6


def test_a_registry_that_nobody_listens_for_is_an_outage() -> None:
    """Refused is as 5xx."""
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(TransientSchemaRegistryError, match="does not answer"):
        quick(url).schema(7)


def test_a_registry_that_says_nothing_is_an_outage() -> None:
    """The bound is of each request."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        registry = SchemaRegistry(url, timeout=0.05, attempts=2, retry_delay=0)
        with pytest.raises(TransientSchemaRegistryError, match="timed out"):
            registry.schema(7)


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_not_tried_again(server: RegistryServer, status: int) -> None:
    """It is an error of its own."""
    server.next.append((status, b"no", {}))
    with pytest.raises(SchemaRegistryAccessError, match="credentials"):
        quick(server.url).schema(7)
    assert len(server.asked) == 1


def test_credentials_are_looked_up_where_they_are_used(
    server: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pickle and a repr have their names alone; they may change between two requests."""
    secret = tmp_path / "password"
    secret.write_text("geheim\n")
    registry = SchemaRegistry.from_url(f"{server.url}?username=env:WHO&password=file:{secret}")
    monkeypatch.setenv("WHO", "me")
    server.wanted = basic("me", "geheim")
    registry = pickle.loads(pickle.dumps(registry))  # noqa: S301 - made here
    assert registry.schema(7).text == '"string"'
    secret.write_text("neu")
    server.wanted = basic("me", "neu")
    assert registry.version("orders-value").text == '"string"'
    assert "password" not in repr(registry)
    monkeypatch.delenv("WHO")
    with pytest.raises(ConfigurationError, match="no environment variable 'WHO'"):
        registry.version("orders-value")


def test_a_token_is_sent_as_one(server: RegistryServer) -> None:
    """And shown by no error."""
    server.wanted = "Bearer abc"
    assert SchemaRegistry(server.url, token="abc").schema(7).kind == "AVRO"  # noqa: S106
    with pytest.raises(ConfigurationError) as caught:
        SchemaRegistry(server.url, token="ab\r\nc: d").version("x")  # noqa: S106
    assert "d" not in str(caught.value).split()


def test_credentials_follow_no_redirect_to_another_server(server: RegistryServer) -> None:
    """Not even another port; within the server they go on."""
    registry = SchemaRegistry(server.url, username="me", password="geheim")  # noqa: S106
    with running() as other:
        other.add(7, "int")
        server.next.append((302, b"", {"Location": f"{other.url}/schemas/ids/7"}))
        with pytest.raises(SchemaRegistryError, match=f"redirects to {other.url}"):
            registry.schema(7)
        assert not other.asked
    server.next.append((307, b"", {"Location": "/subjects/orders-value/versions/1"}))
    assert registry.schema(7).text == '"string"'
    assert server.seen[-1]["authorization"] == basic("me", "geheim")


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://[", "http://a:b/", "//", "\x00"])
def test_redirects_to_nowhere_are_errors(server: RegistryServer, target: str) -> None:
    """A typed one, whatever the server says."""
    server.next.extend([(302, b"", {"Location": target})] * 9)
    with pytest.raises(SchemaRegistryError):
        quick(server.url).schema(7)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>hello</html>",
        b"[]",
        b'{"schema": 5}',
        b'{"schema": "x", "schemaType": null}',
        b'{"schema": "x", "references": 5}',
        b'{"schema": "x", "references": [{"name": "a"}]}',
        b'{"schema": "x", "references": [{"name": "a", "subject": [], "version": 1}]}',
        b"\xff\xfe",
        b"[" * 9_999,
        b'{"schema": "' + b"x" * 10_000 + b'"}',
    ],
    ids=range(11),
)
def test_garbage_is_no_schema(server: RegistryServer, body: bytes) -> None:
    """A typed error of some 200 characters, and it is not asked again."""
    server.next.append((200, body, {}))
    with pytest.raises(SchemaRegistryError) as caught:
        quick(server.url).schema(7)
    assert not isinstance(caught.value, TransientSchemaRegistryError | LookupError)
    assert len(str(caught.value)) < 500
    assert len(server.asked) == 1


def test_an_answer_that_ends_early_is_asked_for_again(server: RegistryServer) -> None:
    """Half an answer may be JSON too."""
    server.next.append((200, b'{"schema": "x"}', {"Content-Length": "99", "Connection": "close"}))
    assert quick(server.url).schema(7).text == '"string"'


@pytest.mark.parametrize(
    "url,what",
    [
        ("ftp://host", "http://host:port"),
        ("https://", "https://host:port"),
        ("https://me:secret@host", "username=reader"),
        ("https://host:0x1f", "no URL"),
        ("https://me:secret@host:0x1f", "no URL"),
        ("https://me:secret@[host", "no URL"),
        ("ftp://host?password=secret", "http://host:port"),
        ("ftp://me:secret@host", "http://host:port"),
        ("https://host?user=x", "did you mean username="),
        ("https://host?username=x", "give both"),
        ("https://host?token=x&username=x&password=y", "give one of them"),
        ("https://host?timeout=0", "seconds, above 0"),
        ("https://host?attempts=0", "1 or more"),
    ],
)
def test_a_url_that_is_none_is_refused(url: str, what: str) -> None:
    """Before anything is asked, and without a secret in the message."""
    with pytest.raises(ConfigurationError, match=what) as caught:
        SchemaRegistry.from_url(url)
    with pytest.raises(ConfigurationError) as built:
        SchemaRegistry(url)
    assert "secret" not in f"{caught.value} {built.value}"


def test_certificates_that_cannot_be_read_are_named() -> None:
    """A file that is not there is no outage."""
    registry = SchemaRegistry("https://127.0.0.1:1", ca_file="/nowhere.pem")
    with pytest.raises(ConfigurationError, match=r"/nowhere\.pem"):
        registry.schema(1)
