"""Finds which account of this machine opened a connection: the operator's or another one.

Every account of this machine can reach a program that listens on 127.0.0.1, and would then act as
the operator's user. Linux lists the owner of each connection.
"""

import os
import socket
import sys
from pathlib import Path
from typing import Any

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENS = "0A"
ROOT = 0
NOBODYS = "0"
"""The inode number that Linux lists for a closed connection, whose owner is unknown."""
Address = tuple[str, int]


def is_other_account(scope: Any) -> bool:
    """Whether a request comes from an account other than ours or root, or from a closed connection.
    False if the system does not list owners."""
    client, server = scope.get("client"), scope.get("server")
    rows = [row for table in TABLES for row in _rows(table)]
    is_listed = server and any(
        row[3] == LISTENS and int(row[1].partition(":")[2], 16) == server[1] for row in rows
    )
    if not client or not is_listed:
        return False
    ends = {(one, other) for one, other in zip(_written(client), _written(server), strict=True)}
    owners = {int(row[7]) for row in rows if (row[1], row[2]) in ends and row[9] != NOBODYS}
    return not owners or not owners <= {os.getuid(), ROOT}


def _rows(table: Path) -> list[list[str]]:
    try:
        return [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:  # Only Linux has them.
        return []


def _written(address: Address) -> tuple[str, ...]:
    """An address in the form of the tables: words in the machine's byte order. An IPv4 address may
    also be in the table of IPv6."""
    host, port = address
    is_short = ":" not in host
    number = socket.inet_pton(socket.AF_INET if is_short else socket.AF_INET6, host)
    longer = (b"\0" * 10 + b"\xff\xff" + number) if is_short else number
    return tuple(f"{_words(one)}:{port:04X}" for one in (number, longer))


def _words(number: bytes) -> str:
    words = (number[at : at + 4] for at in range(0, len(number), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
