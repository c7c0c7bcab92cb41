"""What the server's memory holds, and what it lets go."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PARTS = """
import ctypes, os, sys, threading
if "shared" in sys.argv:
    from breakeven.views.upkeep.startup import share_arenas
    share_arenas()
meet = threading.Barrier(8)
def work():
    meet.wait()
    held = [bytes(600 + size) for size in range(5000)]
    meet.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
[one.start() for one in threads]
[one.join() for one in threads]
library = ctypes.CDLL(None)
library.fdopen.restype = ctypes.c_void_p
library.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
library.fflush.argtypes = [ctypes.c_void_p]
out = library.fdopen(1, b"w")
library.malloc_info(0, out)
library.fflush(out)
"""


FREED = """
from pathlib import Path
import os
from breakeven.views.upkeep.startup import give_back

def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

held = [bytes(5000) for _ in range(20_000)]
last = held.pop()  # what lies below it stays
before = megabytes()
held.clear()
kept = before - megabytes()
give_back()
print(kept, before - megabytes())
"""
glibc_alone = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="another library divides otherwise"
)


def printed(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def num_parts(*arguments: str) -> int:
    """Into how many parts the memory of threads that work side by side is divided."""
    return printed(PARTS, *arguments).count("<heap nr=")


@glibc_alone
@pytest.mark.heavy
def test_runs_of_pages_share_the_memory_that_they_free() -> None:
    assert num_parts("shared") < num_parts()


@glibc_alone
@pytest.mark.heavy
def test_what_lies_free_below_something_in_use_is_given_back() -> None:
    """100 MB, of which the very last piece is in use."""
    by_itself, when_told = map(float, printed(FREED).split())
    assert by_itself < 10 and when_told > 90
