"""Claims about installing npm packages: the real npm, a registry on 127.0.0.1."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer_sdk.testing.servers import NodePackage, NodePackageError, find_node, install_package
from consumer_sdk.testing.servers.kinesis.servers import KINESALITE, KINESIS_LOCAL
from tests.testing.servers.npm_registry import NAME, VERSION, Registry, serving, tarball
from tests.testing.servers.npm_registry import write_manifests as written


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Give a registry that npm's own configuration names; npm's cache is the test's own."""
    with serving(tarball()) as found:
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", found.url)
        monkeypatch.setenv("NPM_CONFIG_CACHE", str(tmp_path / "npm-cache"))
        monkeypatch.setenv("NPM_CONFIG_FETCH_RETRIES", "0")
        yield found


@pytest.fixture
def package(tmp_path: Path) -> NodePackage:
    """Give the package that the registry has."""
    return NodePackage(NAME, written(tmp_path / "manifests", tarball()))


def install(tmp_path: Path, package: NodePackage) -> Path:
    """Install into a cache of the test's own."""
    return install_package(find_node(), package, cache=tmp_path / "cache")


def test_package_is_installed_once_from_the_users_registry(
    tmp_path: Path, registry: Registry, package: NodePackage
) -> None:
    """Where from is what npm's own configuration says; the second call asks nobody."""
    folder = install(tmp_path, package)
    assert (folder / "index.js").read_text(encoding="utf-8") == "module.exports = 'hello'\n"
    asked = list(registry.asked)
    assert any(path.endswith(".tgz") for path in asked)
    assert (install(tmp_path, package), registry.asked) == (folder, asked)


def test_scripts_of_packages_are_not_run(
    tmp_path: Path, registry: Registry, package: NodePackage
) -> None:
    """What a package would do at its installation is not done."""
    assert not (install(tmp_path, package) / "it-ran").exists()


@pytest.mark.campaign
def test_missing_file_is_installed_again(
    tmp_path: Path, registry: Registry, package: NodePackage
) -> None:
    """A file that somebody removed from the cache is noticed before a server needs it."""
    (install(tmp_path, package) / "index.js").unlink()
    assert (install(tmp_path, package) / "index.js").is_file()


def test_file_with_another_hash_is_refused(
    tmp_path: Path, registry: Registry, package: NodePackage
) -> None:
    """A registry that gives something else under the same version is found out."""
    registry.packed = b"something else"
    with pytest.raises(NodePackageError, match="EINTEGRITY"):
        install(tmp_path, package)


@pytest.mark.campaign
def test_registry_out_of_reach_is_told_and_nothing_is_cached(
    tmp_path: Path, registry: Registry, package: NodePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the package, the remedy and npm's reason; the next call tries again."""
    with monkeypatch.context() as broken:
        broken.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:1/")
        for _ in range(2):
            with pytest.raises(NodePackageError) as caught:
                install(tmp_path, package)
            for part in (NAME, VERSION, "NPM_CONFIG_REGISTRY", "ECONNREFUSED"):
                assert part in str(caught.value)
    assert install(tmp_path, package).is_dir()


async def test_two_callers_at_once_install_once(
    tmp_path: Path, registry: Registry, package: NodePackage, caplog: pytest.LogCaptureFixture
) -> None:
    """The second caller waits for the first one's files."""
    caplog.set_level(logging.INFO, logger="consumer_sdk")
    calls = (asyncio.to_thread(install, tmp_path, package) for _ in range(2))
    one, other = await asyncio.gather(*calls)
    assert one == other
    assert len([line for line in caplog.messages if "installing" in line]) == 1


@pytest.mark.parametrize("shipped", [KINESIS_LOCAL, KINESALITE], ids=lambda each: each.name)
def test_shipped_lock_pins_hashes_and_names_no_registry(shipped: NodePackage) -> None:
    """Each package is pinned by a hash, and comes from wherever the user's npm fetches from."""
    lock = (shipped.manifests / "package-lock.json").read_text(encoding="utf-8")
    assert f'"{shipped.name}": "{shipped.version}"' in lock
    assert lock.count('"node_modules/') == lock.count('"integrity": "sha512-')
    assert '"resolved"' not in lock
