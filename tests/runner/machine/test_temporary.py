"""What another account put where torch keeps headers is compiled into nothing."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from breakeven.runner.experiments.queue import submit
from breakeven.runner.machine.run_variables import compiler_folder_name, protect_compiler_folder
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.worker.before_torch import prepare


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Torch's own in a temporary folder of the test's, which is not made yet."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    for variable in (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "TOKENIZERS_PARALLELISM",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
    ):
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    return tmp_path / compiler_folder_name()


def test_a_run_makes_the_folder_before_anybody_else_can(folder: Path) -> None:
    data_dir = DataDir(folder.parent / "data")
    submit(data_dir, ExperimentSpec(name="trial", backends=(), controls=0))
    (run,) = data_dir.run_dirs()
    prepare(run.read_spec(), run)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert tempfile.gettempdir() == str(folder.parent)


def test_what_is_ours_stays_and_nobody_else_gets_in(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o775)
    (folder / "header.h").touch()
    protect_compiler_folder()
    assert folder.stat().st_mode & 0o777 == 0o700 and (folder / "header.h").exists()
    assert os.environ["TMPDIR"] == str(folder.parent)


@pytest.mark.parametrize("made", ["by another account", "as a link", "for everybody", "as a file"])
def test_what_may_be_somebody_elses_is_passed_by(
    folder: Path, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if made == "as a file":
        folder.touch()
    elif made == "as a link":
        folder.symlink_to(folder.parent)
    else:
        folder.mkdir()
        folder.chmod(0o777 if made == "for everybody" else 0o755)
    if made == "by another account":
        someone = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: someone)
    protect_compiler_folder()
    own = Path(os.environ["TMPDIR"])
    assert own != folder.parent and own.stat().st_mode & 0o777 == 0o700
    assert tempfile.gettempdir() == str(own)  # Torch asks that.


@pytest.mark.heavy
def test_it_is_the_folder_that_torch_means() -> None:
    from torch._inductor.codecache import _HEADER_DIR

    assert Path(_HEADER_DIR).parent.name == compiler_folder_name()
