"""Gets jars through the Ivy that the PySpark wheel ships.

Nothing has to be installed beside PySpark and Java. Each set of jars is fetched once per user into
a cache folder and checked at each use. Ivy's default settings are used, which know the public
repository; users with a mirror of their own name a settings file.

Rules: what was fetched before a failure is kept for the next try; Ivy's exit status is not trusted
(it can be 0 with artefacts missing), its report and the files are.
"""

import importlib.util
import logging
import os
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import final
from xml.etree import ElementTree  # noqa: ICN001  its full name says more than ET

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.testing.servers.cache import cache_folder, is_complete, locked, publish
from consumer_sdk.testing.servers.errors import JarResolutionError
from consumer_sdk.testing.servers.java import find_java

__all__ = ["Artifact", "JarSet", "pyspark_jars", "resolve_jars"]

_LOG = logging.getLogger(__name__)
_MAVEN = "http://ant.apache.org/ivy/maven"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One artefact to resolve.

    Args:
        org: the organisation, such as ``org.apache.kafka``.
        name: the artefact.
        revision: the exact version.
        conf: Ivy's configuration mapping: ``default`` brings what it depends on, and
            ``default->master`` the artefact alone.
        classifier: Maven's classifier of the file, such as ``bin``.
        extension: the file's kind.
    """

    org: str
    name: str
    revision: str
    conf: str = "default"
    classifier: str | None = None
    extension: str = "jar"

    def element(self) -> ElementTree.Element:
        """Return the artefact as Ivy's XML."""
        element = ElementTree.Element("dependency", org=self.org, name=self.name, rev=self.revision)
        element.set("conf", self.conf)
        if self.classifier or self.extension != "jar":
            file = {"name": self.name, "type": self.extension, "ext": self.extension}
            if self.classifier:
                file[f"{{{_MAVEN}}}classifier"] = self.classifier
            ElementTree.SubElement(element, "artifact", file)
        return element


@final
@dataclass(frozen=True, slots=True)
class JarSet:
    """A named set of artefacts that lie in one folder."""

    name: str
    artifacts: tuple[Artifact, ...]

    def ivy_file(self) -> bytes:
        """Return the set as an Ivy module."""
        root = ElementTree.Element("ivy-module", version="2.0")
        ElementTree.SubElement(root, "info", organisation="consumer_sdk", module=self.name)
        configurations = ElementTree.SubElement(root, "configurations")
        ElementTree.SubElement(configurations, "conf", name="default")
        dependencies = ElementTree.SubElement(root, "dependencies")
        dependencies.extend(artifact.element() for artifact in self.artifacts)
        return ElementTree.tostring(root)

    @property
    def folder(self) -> str:
        """The folder's name: another one for other versions."""
        return f"{self.name}-{sha256(self.ivy_file()).hexdigest()[:10]}"


def pyspark_jars() -> Path:
    """Return the folder of the jars in the installed PySpark.

    Raises:
        MissingExtraError: PySpark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingExtraError("pyspark", "testing")
    return Path(spec.origin).parent / "jars"


def resolve_jars(jars: JarSet, *, cache: Path | None = None, settings: Path | None = None) -> Path:
    """Return the folder with the set's files; fetches them when they are not there yet.

    Blocks, for a minute at the first call: call it in a thread.

    Args:
        jars: what to get.
        cache: the cache folder; `cache_folder()` by default.
        settings: an Ivy settings file, for a mirror or a proxy; CONSUMER_SDK_IVY_SETTINGS, else
            Ivy's own settings by default.

    Raises:
        JarResolutionError: something could not be fetched; ends with Ivy's own words.
        JavaNotFoundError: there is no Java to run Ivy with.
        MissingExtraError: PySpark, which ships Ivy, is not installed.
    """
    target = (cache or cache_folder()) / "jars" / jars.folder
    if is_complete(target):
        return target
    with locked(target):
        if not is_complete(target):
            _fetch(jars, target, settings or _settings_of_environment())
    return target


def _settings_of_environment() -> Path | None:
    chosen = os.environ.get("CONSUMER_SDK_IVY_SETTINGS")
    return Path(chosen) if chosen else None


def _fetch(jars: JarSet, target: Path, settings: Path | None) -> None:
    _LOG.info("fetching the jars of %s into %s (the first time only)", jars.name, target)
    work = target.with_suffix(".partial")
    files = work / "files"
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir(parents=True)
    (work / "ivy.xml").write_bytes(jars.ivy_file())
    output = _run_ivy(work, settings)
    problem = _unresolved(work / "ivy", jars, files)
    if problem:
        said = "\n".join(line for line in output.splitlines() if line.strip())
        raise JarResolutionError(_advice(jars, problem, settings) + said[-2500:])
    publish(files, target)
    shutil.rmtree(work)


def _run_ivy(work: Path, settings: Path | None) -> str:
    ivy = next(pyspark_jars().glob("ivy-*.jar"), None)
    if ivy is None:
        raise JarResolutionError(f"no Ivy in {pyspark_jars()}: install PySpark 4.2 or newer again")
    command = [str(find_java()), "-cp", str(ivy), "org.apache.ivy.Main"]
    command += ["-settings", str(settings)] if settings else []
    command += ["-cache", str(work / "ivy"), "-ivy", str(work / "ivy.xml"), "-confs", "default"]
    command += ["-retrieve", f"{work}/files/[artifact]-[revision](-[classifier]).[ext]"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own command line
    return result.stdout + result.stderr


def _unresolved(cache: Path, jars: JarSet, files: Path) -> str | None:
    """Return what Ivy's report or the files lack, or None."""
    report = cache / f"consumer_sdk-{jars.name}-default.xml"
    if not report.is_file():
        return "Ivy wrote no report"
    tree = ElementTree.parse(report)  # noqa: S314  written by Ivy a moment ago
    failed = [
        f"{module.get('name')} {revision.get('name')}: {revision.get('error')}"
        for module in tree.iter("module")
        for revision in module.iter("revision")
        if revision.get("error")
    ]
    artifacts = list(tree.iter("artifact"))
    failed += [
        f"{each.get('name')}: {each.get('details') or 'download failed'}"
        for each in artifacts
        if each.get("status") == "failed"
    ]
    present = [file for file in files.iterdir() if file.stat().st_size]
    failed += [
        f"{file.name} is damaged"
        for file in present
        if file.suffix == ".jar" and not zipfile.is_zipfile(file)
    ]
    if not failed and (not present or len(present) < len(artifacts)):
        failed.append(f"{len(present)} of {len(artifacts)} files arrived")
    return "; ".join(failed) or None


def _advice(jars: JarSet, problem: str, settings: Path | None) -> str:
    return (
        f"the jars of {jars.name} could not be fetched: {problem}. "
        f"Ivy's settings: {settings or 'its own, the public repository'}. Check the network, or "
        "name a settings file for your mirror in CONSUMER_SDK_IVY_SETTINGS. Ivy said:\n"
    )
