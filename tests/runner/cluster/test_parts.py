"""What comes home of a run folder: prefixes of what grows, whole files, and the end last."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.runner.cluster.host import HomeFile, Part, missing_parts, sizes_at_home, store_part
from breakeven.runner.errors import InvalidRunFolder
from breakeven.runner.protocol.run_dir import RunDir


def folders(parent: Path) -> tuple[RunDir, RunDir]:
    """HomeFile, and at home."""
    runs = RunDir(parent / "there" / "e.baseline"), RunDir(parent / "home" / "e.baseline")
    for run in runs:
        run.path.mkdir(parents=True)
    return runs


def bring(there: RunDir, home: RunDir, known: dict[str, HomeFile], most: int) -> list[str]:
    """One delivery; the paths that came."""
    parts = list(missing_parts(there, known, most))
    for part in parts:
        store_part(home, part, known)
    return [part.path for part in parts]


def append(file: Path, data: bytes) -> None:
    with file.open("ab") as opened:
        opened.write(data)


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 30), st.booleans()), max_size=12))
def test_a_journal_at_home_is_always_a_prefix_and_in_the_end_complete(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[bytes, int, bool]]
) -> None:
    there, home = folders(tmp_path_factory.mktemp("parts"))
    known: dict[str, HomeFile] = {}
    written = b""
    for data, most, is_new_driver in writes:
        append(there.events_file, data)
        written += data
        if is_new_driver:
            known = dict(sizes_at_home(home))
        bring(there, home, known, most)
        kept = home.events_file.read_bytes() if home.events_file.exists() else b""
        assert written.startswith(kept)
    for _ in range(len(written) + 1):
        if not bring(there, home, known, 7):
            break
    assert home.events_file.exists() == bool(written)
    assert not written or home.events_file.read_bytes() == written


def test_the_end_comes_after_all_else_and_what_the_supervisor_at_home_writes_never(
    tmp_path: Path,
) -> None:
    there, home = folders(tmp_path)
    append(there.events_file, b"x" * 25)
    there.checkpoints.mkdir(parents=True)
    (there.checkpoints / "step-10.pt").write_bytes(b"c" * 25)
    (there.checkpoints / "step-20.pt.tmp").write_bytes(b"half")
    there.compile_cache.mkdir()
    (there.path / "source").mkdir()
    for path in (
        "exit.json",
        "claim.json",
        "spec.json",
        "cancel",
        "compile-cache/big",
        "source/model.py",
    ):
        (there.path / path).write_text("{}")
    known: dict[str, HomeFile] = {}
    came = [path for _ in range(9) for path in bring(there, home, known, 10)]
    checkpoint = "artifacts/checkpoints/step-10.pt"
    assert list(dict.fromkeys(came)) == ["events.jsonl", checkpoint, "source/model.py", "exit.json"]
    assert came[-1] == "exit.json"
    assert (home.path / checkpoint).read_bytes() == b"c" * 25
    assert sorted(file.name for file in home.path.rglob("*") if file.is_file()) == [
        "events.jsonl",
        "exit.json",
        "model.py",
        "step-10.pt",
    ]


def test_a_checkpoint_that_is_written_anew_on_its_way_never_comes_home_mixed(
    tmp_path: Path,
) -> None:
    there, home = folders(tmp_path)
    there.artifacts.mkdir()
    file, arrived = there.artifacts / "latest.pt", home.artifacts / "latest.pt"
    file.write_bytes(b"a" * 30)
    known: dict[str, HomeFile] = {}
    bring(there, home, known, 10)
    file.write_bytes(b"b" * 20)
    os.utime(file, ns=(1, 10**18))
    for _ in range(3):
        bring(there, home, known, 10)
        assert not arrived.exists() or arrived.read_bytes() == b"b" * 20
    assert arrived.read_bytes() == b"b" * 20


def test_no_checkpoint_comes_before_the_steps_that_led_to_it(tmp_path: Path) -> None:
    there, home = folders(tmp_path)
    there.checkpoints.mkdir(parents=True)
    known: dict[str, HomeFile] = {}
    for step in range(5):
        append(there.events_file, json.dumps({"step": step}).encode() + b"\n")
        (there.checkpoints / f"{step}.pt").write_bytes(b"c")
        bring(there, home, known, 20)
        num_steps = len(home.events_file.read_bytes().splitlines())
        assert len(list(home.artifacts.rglob("*.pt"))) <= num_steps


@pytest.mark.parametrize(
    "path",
    [
        "../other/exit.json",
        "spec.json",
        "a/../../x",
        "/etc/passwd",
        "./spec.json",
        "",
        ".",
        "attempts/1/claim.json",
        "compile-cache/inductor/a.py",
        "work/train.py",
    ],
)
def test_a_part_that_leads_out_of_the_folder_or_belongs_to_home_is_refused(
    tmp_path: Path, path: str
) -> None:
    _, home = folders(tmp_path)
    part = Part(run_id="e.baseline", path=path, offset=0, data=b"x", is_end=True)
    with pytest.raises(InvalidRunFolder):
        store_part(home, part, {})
    assert not list(home.path.iterdir())


def test_links_pipes_and_what_lies_behind_them_stay_there(tmp_path: Path) -> None:
    there, home = folders(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("what lies outside")
    there.output_file.symlink_to(secret)
    os.mkfifo(there.events_file)
    (there.path / "exit.json").symlink_to(secret)
    there.artifacts.symlink_to(tmp_path)
    assert bring(there, home, {}, 1000) == [] and not list(home.path.iterdir())


def test_output_that_was_cut_there_is_cut_here(tmp_path: Path) -> None:
    there, home = folders(tmp_path)
    known: dict[str, HomeFile] = {}
    there.output_file.write_bytes(b"long" * 9)
    bring(there, home, known, 100)
    there.output_file.write_bytes(b"short")
    bring(there, home, known, 100)
    assert home.output_file.read_bytes() == b"short"
