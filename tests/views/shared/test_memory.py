"""What the server's memory holds, and what it lets go."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PARTS = """
import ctypes, os, sys, threading
import serve
if "shared" in sys.argv:
    serve.share_arenas()
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


def num_parts(*arguments: str) -> int:
    """Into how many parts the memory of threads that work side by side is divided."""
    command = [sys.executable, "-c", PARTS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.count("<heap nr=")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another library divides otherwise")
@pytest.mark.heavy
def test_runs_of_pages_share_the_memory_that_they_free() -> None:
    assert num_parts("shared") < num_parts()
