"""Recognises requests of other accounts of this machine by the owners of their connections."""

import os
from pathlib import Path
from typing import Any

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENS = "0A"
ROOT = 0
NOBODYS = "0"
"""The inode number that Linux lists for a closed connection, whose owner is unknown."""


def is_other_account(scope: Any) -> bool:
    """Whether a request comes from an account other than ours or root, or from a closed connection.
    False if the system does not list owners. If several connections have these two ports, all must
    be ours."""
    client, server = scope.get("client"), scope.get("server")
    rows = [row for table in TABLES for row in _rows(table)]
    is_listed = server and any(row[3] == LISTENS and _port(row[1]) == server[1] for row in rows)
    if not client or not is_listed:
        return False
    ends = client[1], server[1]
    owners = {
        int(row[7]) for row in rows if (_port(row[1]), _port(row[2])) == ends and row[9] != NOBODYS
    }
    return not owners or not owners <= {os.getuid(), ROOT}


def _rows(table: Path) -> list[list[str]]:
    try:
        return [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:  # Only Linux has them.
        return []


def _port(end: str) -> int:
    """The port of `0100007F:1F90`."""
    return int(end.partition(":")[2], 16)
