"""Checks that the links in the repository's Markdown files lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.+?)\s*#*$", re.MULTILINE)


def documents() -> list[Path]:
    """Return the tracked and the new Markdown files."""
    command = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md")
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603  constant command
    return [path for name in listed.split("\0") if name and (path := Path(name)).is_file()]


def prose(path: Path) -> str:
    """Return the text without its code blocks."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def anchor(heading: str) -> str:
    """Return the anchor that forges make for a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    """Return all anchors of a document."""
    return {anchor(heading) for heading in HEADING.findall(prose(path))}


def problem(source: Path, link: str) -> str | None:
    """Return what is wrong with a link, or None; links to other sites are not followed."""
    if re.match(r"[a-z]+:", link):
        return None
    name, _, fragment = link.partition("#")
    target = source.parent / name if name else source
    if not target.exists():
        return f"{source}: {link}: no such file"
    if fragment and target.suffix == ".md" and fragment not in anchors(target):
        return f"{source}: {link}: no such heading"
    return None


def main() -> int:
    """Print every broken link; 1 when there is one."""
    pages = documents()
    broken = [
        text
        for page in pages
        for link in LINK.findall(prose(page))
        if (text := problem(page, link))
    ]
    print("\n".join(broken) or f"docs: links of {len(pages)} pages lead somewhere")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
