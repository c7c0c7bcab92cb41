"""Ranks of one machine talk to each other, and to nobody in the network."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.folders.data_dir import DataDir
from tests.helpers.waiting import wait_until
from tests.runner.worker.ranks.test_endings import Work, ended, environment

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's table of sockets"),
]
LISTENS = "0A"
LOOPBACK = re.compile("0100007F|0{24}01000000|0{16}FFFF00000100007F")
"""127.0.0.1 and ::1 as the table has them, words of the machine's order."""


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    with ended(Work(DataDir(tmp_path))) as work:
        yield work


def test_a_run_on_several_devices_listens_to_nobody_outside(work: Work) -> None:
    """A store of torch's listens to the network, and its agent runs what anybody puts there."""
    wait_until(lambda: "ready" in work.post.read(), patience_seconds=300)
    addresses = [one for pid in (work.process.pid, *work.ranks) for one in listening(pid)]
    assert addresses  # Ranks do find each other somehow.
    assert [one for one in addresses if not LOOPBACK.fullmatch(one)] == []
    for pid in work.ranks:  # Where the machine's own name leads to the network, too.
        told = environment(pid)
        assert told["GLOO_SOCKET_IFNAME"] == told["NCCL_SOCKET_IFNAME"] == "lo"


def listening(pid: int) -> list[str]:
    """The addresses of a process's sockets that others may connect to."""
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    own = {link.removeprefix("socket:[").removesuffix("]") for link in links if "socket:" in link}
    rows = [row.split() for table in ("tcp", "tcp6")
            for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]]  # fmt: skip
    return [row[1].partition(":")[0] for row in rows if row[3] == LISTENS and row[9] in own]
