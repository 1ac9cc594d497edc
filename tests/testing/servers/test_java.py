"""Claims about finding Java."""

from pathlib import Path

import pytest

from consumer_sdk.testing.servers import JavaNotFoundError, KafkaServer, find_java


def fake_java(folder: Path, script: str) -> None:
    """Write a program that is called java."""
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    java.chmod(0o755)


def test_no_java_names_where_it_looked_and_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without JAVA_HOME and PATH there is a typed error with the package to install."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(JavaNotFoundError, match=r"PATH.*openjdk-17"):
        find_java()


def test_wrong_java_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JAVA_HOME without a Java is an error, though PATH has one: the user chose it."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaNotFoundError, match=f"JAVA_HOME={tmp_path}"):
        find_java()


@pytest.mark.parametrize(
    "version, found",
    [("1.8.0_402", "Java 8"), ("11.0.2", "Java 11")],
)
def test_old_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, found: str
) -> None:
    """Kafka 4 would die with a stack trace on them; the error says which version was found."""
    fake_java(tmp_path, f"""echo 'openjdk version "{version}"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaNotFoundError, match=found):
        find_java()


def test_broken_java_is_refused_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Java that does not run is no Java."""
    fake_java(tmp_path, "echo 'cannot open shared object' >&2; exit 127")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaNotFoundError, match="cannot open shared object"):
        find_java()


async def test_server_without_java_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes from start, before anything is written or fetched."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(JavaNotFoundError):
        await KafkaServer().start()
