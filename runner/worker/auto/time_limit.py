"""Ends Python code of this process that takes too long, such as a compiler that hangs."""

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class TooLong(BaseException):
    """Code took longer than its limit. No `except Exception` of this code catches it."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises `TooLong` in the block after this time: by an alarm, which also ends waiting, in the
    main thread of a program that has no alarm of its own; else between two instructions."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
        with _by_alarm(seconds):
            yield
    else:
        with _by_thread(seconds):
            yield


@contextmanager
def _by_alarm(seconds: float) -> Iterator[None]:
    def end(number: int, frame: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


@contextmanager
def _by_thread(seconds: float) -> Iterator[None]:
    thread = ctypes.c_ulong(threading.get_ident())
    lock, is_over = threading.Lock(), False

    def end() -> None:
        with lock:
            if not is_over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(TooLong))

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            is_over = True
        timer.cancel()
