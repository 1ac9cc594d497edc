"""Looks at what a process listens on, as the system sees it."""

from contextlib import suppress
from pathlib import Path

_LISTEN = "0A"  # the state's number in /proc/net/tcp
_LOOPBACK = "0100007F"  # 127.0.0.1, its bytes turned round


def listening(pid: int) -> list[tuple[str, int]]:
    """Return address and port of each TCP socket that the process listens on.

    The address is as the system writes it: eight hexadecimal digits for IPv4, 32 for IPv6.
    """
    own = _sockets(pid)
    rows = [line.split() for name in ("tcp", "tcp6") for line in _lines(pid, name)]
    found = [row[1].split(":") for row in rows if row[3] == _LISTEN and row[9] in own]
    return sorted((address, int(port, 16)) for address, port in found)


def only_loopback(*ports: int) -> list[tuple[str, int]]:
    """Return what `listening` gives for a process with these ports of 127.0.0.1 and no other."""
    return sorted((_LOOPBACK, port) for port in ports)


def _sockets(pid: int) -> set[str]:
    """Return the inodes of the process's sockets."""
    links = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            links.append(str(each.readlink()))
    return {link.removeprefix("socket:[").rstrip("]") for link in links if "socket:[" in link}


def _lines(pid: int, name: str) -> list[str]:
    return Path(f"/proc/{pid}/net/{name}").read_text(encoding="ascii").splitlines()[1:]
