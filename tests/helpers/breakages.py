"""Ways in which a run folder can be broken, by accident or on purpose."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILES = (
    "spec.json",
    "claim.json",
    "exit.json",
    "events.jsonl",
    "output.log",
    "cancel",
    "artifacts",
    "artifacts/checkpoints",
    "attempts",
    "compile-cache",
)


def _fifo(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path, outside: Path) -> None:
    # An address has at most 108 bytes, so the socket is bound by a short name.
    with socket.socket(socket.AF_UNIX) as unix_socket:
        before = os.open(".", os.O_RDONLY)
        os.chdir(path.parent)
        try:
            unix_socket.bind(path.name)
        finally:
            os.chdir(before)
            os.close(before)


def _text(content: str) -> Callable[[Path, Path], None]:
    return lambda path, outside: path.write_text(content)


def _bytes(content: bytes) -> Callable[[Path, Path], None]:
    return lambda path, outside: path.write_bytes(content) and None


def _link(target: str | None) -> Callable[[Path, Path], None]:
    return lambda path, outside: path.symlink_to(outside if target is None else target)


KINDS: dict[str, Callable[[Path, Path], None]] = {
    "missing": lambda path, outside: None,
    "a folder": lambda path, outside: path.mkdir(),
    "a pipe": _fifo,
    "a socket": _socket,
    "a link to itself": _link("spec.json"),
    "a link to nowhere": _link("/nowhere/at/all"),
    "a link outside": _link(None),
    "a link to a device": _link("/dev/zero"),
    "a link to its own folder": _link("."),
    "empty": _text(""),
    "a text": _text("hello\n" * 10),
    "binary": _bytes(bytes(range(256)) * 100),
    "not UTF-8": _bytes(b'{"reason": "\xff\xfe"}\n'),
    "huge": _bytes(b"x" * 6_000_000),
    "cut off": _text('{"state": "finished", "reas'),
    "ends within an object": _text('{"v": 1, "seq": 5,\n'),
    "an object in two lines": _text('{"a": {"v": 1},\n"kind": "phase", "time": 1.0}\n'),
    "two closed lines of one object": _text('{"a": {"v": 1}\n,"kind": "phase", "time": 1.0}\n'),
    "100,000 brackets": _text("[" * 100_000 + "]" * 100_000 + "\n"),
    "100,000 objects": _text('{"a":' * 100_000 + "1" + "}" * 100_000 + "\n"),
    "a list": _text("[]\n"),
    "an empty object": _text("{}\n"),
    "null": _text("null\n"),
    "NaN": _text("NaN\n"),
    "5,000 digits": _text("9" * 5_000 + "\n"),
    "400 digits in a time": _text(
        '{"state": "finished", "reason": "", "returncode": 0, "time": ' + "9" * 400 + "}\n"
    ),
}


def break_file(folder: Path, name: str, kind: str, outside: Path) -> None:
    """Replaces a file or folder by something of that kind; `outside` is a file elsewhere that a
    link may lead to."""
    path = folder / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if path.parent.is_dir():
        KINDS[kind](path, outside)


def change(document: Any, keys: list[int], value: Any) -> Any:
    """The JSON value with one part replaced, which the numbers select."""
    if not keys or not isinstance(document, (dict, list)) or not document:
        return value
    places = list(document) if isinstance(document, dict) else list(range(len(document)))
    place = places[keys[0] % len(places)]
    copy = document.copy()
    copy[place] = change(document[place], keys[1:], value)
    return copy


def change_file(file: Path, keys: list[int], value: Any) -> None:
    """Replaces a part of the JSON in a file; in a journal, each row is changed in a copy of the
    row."""
    if not file.is_file():
        return
    lines = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    changed = [json.dumps(change(json.loads(line), keys, value)) for line in lines]
    kept = lines if file.suffix == ".jsonl" else []
    file.write_text("\n".join([*changed, *kept]) + "\n")


HOSTILE_NAMES = (
    b"\xff\xfe.baseline",
    b"a\nb.baseline",
    b"-rf",
    b"*",
    b"[1].baseline",
    "\u202e.x".encode(),
    b"\x1b[31mred",
    b"x" * 250,
)
