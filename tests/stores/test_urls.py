"""Stores from URLs: the one that is meant, or an error that says how to write it."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.stores import store_from_url


@pytest.mark.parametrize(
    "url, meant",
    [
        ("sqlite:///var/lib/state.db", "LocalStore('/var/lib/state.db')"),
        ("sqlite:///with%20space/%23.db", "LocalStore('/with space/#.db')"),
        ("zookeeper://zk1:2181", "ZooKeeperStore('zk1:2181', root='/consumer-sdk')"),
        ("zookeeper://zk1:2181/", "ZooKeeperStore('zk1:2181', root='/consumer-sdk')"),
        ("zookeeper://zk1:2181,zk2/a/b", "ZooKeeperStore('zk1:2181,zk2', root='/a/b')"),
        ("zookeeper://[::1]:2181/a", "ZooKeeperStore('[::1]:2181', root='/a')"),
    ],
)
def test_url_names_a_store(url: str, meant: str) -> None:
    """With the options that are in it; nothing is opened."""
    assert repr(store_from_url(url)) == meant


def test_relative_path_is_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without slashes before it."""
    monkeypatch.chdir(tmp_path)

    assert repr(store_from_url("sqlite:a/state.db")) == f"LocalStore('{tmp_path}/a/state.db')"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "state.db",
        "/var/lib/state.db",
        "sqlite:",
        "sqlite:///",
        "sqlite://state.db",
        "sqlite://host/state.db",
        "zookeeper:",
        "zookeeper:///root",
        "zookeeper://zk1:2181/root?auth=secret",
        "zookeeper://user:secret@zk1:2181/root",
        "zookeeper://[::1/root",
        "memory://",
        "kafka://host/topic",
    ],
)
def test_other_url_is_refused(url: str) -> None:
    """The error says what can be written, and shows no password."""
    with pytest.raises(ConfigurationError, match=r"sqlite:///absolute|ZooKeeperStore\(") as caught:
        store_from_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["zookeeper://zk1/../a", "zookeeper://zk1/zookeeper/a"])
def test_root_that_cannot_be_is_refused(url: str) -> None:
    """As the store itself does."""
    with pytest.raises(ConfigurationError, match="root="):
        store_from_url(url)


def test_file_that_has_to_exist_is_not_made(tmp_path: Path) -> None:
    """Whoever reads from a mistyped path is told, and does not find an empty store."""
    path = tmp_path / "state.db"

    with pytest.raises(ConfigurationError, match="no file"):
        store_from_url(f"sqlite://{path}", must_exist=True)
    assert not path.exists()


@pytest.mark.parametrize(
    "url, said",
    [
        ("sqlite:///state.db?busy_timeout=1&x=2", r"busy_timeout=, x= in .*LocalStore\("),
        ("sqlite:///state.db?=", r"takes no options; give them to LocalStore\("),
        ("zookeeper://zk1/root?max_size=1", r"max_size= in .*ZooKeeperStore\("),
        ("sqlite:///state.db?secret", r"what follows '\?' in .*LocalStore\("),
        ("memory://x?a=1", "names no store"),
        ("sqlite:///state.db#part", "names no store"),
        ("sqlite://me:secret@/state.db?a=1", "names no store"),
    ],
)
def test_options_in_a_url_are_refused_by_name(url: str, said: str) -> None:
    """They belong to the store's own arguments; a URL that is none anyway is refused as that."""
    with pytest.raises(ConfigurationError, match=said) as caught:
        store_from_url(url)
    assert "secret" not in str(caught.value)


def test_file_that_has_to_exist_and_does_is_opened(tmp_path: Path) -> None:
    """Nothing is looked for inside of it."""
    path = tmp_path / "state.db"
    path.touch()
    assert repr(store_from_url(f"sqlite://{path}", must_exist=True)) == f"LocalStore('{path}')"


def test_what_is_no_text_is_refused() -> None:
    """A store that was made already is given as it is."""
    with pytest.raises(ConfigurationError, match="url"):
        store_from_url(42)  # type: ignore[arg-type]
