"""The search for the first bad version of a package: real wheels in a folder, real environments of
uv, and every day fake runs."""

import re
import sys
from pathlib import Path

import pytest

from breakeven.runner.commands.bisect import Versions, _requirements, first_bad, read_versions
from breakeven.runner.commands.cli import main
from breakeven.runner.commands.conditions import Condition, parse_conditions
from breakeven.runner.errors import InvalidSpec, RunnerError
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import experiments
from breakeven.runner.machine.environments import released_between, uv_environments
from breakeven.runner.project import PROJECT_ROOT
from tests.helpers.in_process import storage_asked_here
from tests.runner.commands.test_environments import (  # noqa: F401  (index is a fixture)
    LAYER,
    OWN_PACKAGES,
    SCRIPT,
    index,
    wheel,
)
from tests.runner.supervision.supervised import commands_here

GOOD, SLOW, WRONG = ("0.004", "1.0"), ("0.02", "1.0"), ("0.004", "1.05")


def plant(folder: Path, version: str, kind: tuple[str, str], needs: str = "") -> None:
    work, factor = kind
    layer = LAYER.format(work=f"time.sleep({work})", factor=factor)
    wheel(folder, "layer", version, {"layer.py": layer}, needs)


FAKE_RUN = f"""
import sys
sys.path.insert(0, {str(PROJECT_ROOT)!r})
import layer
from tests.helpers import fake_worker
fake_worker.PACE = layer.PACE
sys.exit(fake_worker.main())
"""
FAKE_TORCH = {"torch/__init__.py": "__version__ = '2.9.0'", "torch_of_tests.pth": OWN_PACKAGES}


def search(tmp_path: Path, versions: str, *more: str, torch: dict[str, str] | None = None) -> int:
    """A script that imports `layer`, with the torch of the tests beside it."""
    torch = torch or {"torch_of_tests.pth": OWN_PACKAGES}
    wheel(tmp_path / "wheels", "torch_of_tests", "1.0", torch)
    script = tmp_path / "project" / "train.py"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    with storage_asked_here():
        return main(["script", str(script), f"--bisect-versions={versions}", "--backends=",
                     "--environment=test=torch-of-tests", "--profile-steps=0",
                     f"--data-folder={tmp_path / 'data'}", *more])  # fmt: skip


@pytest.mark.heavy
@pytest.mark.usefixtures("index")
def test_the_first_bad_version_of_two_is_found_in_one_experiment(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for version, pace in (("1.0", 1.0), ("1.1", 1.5)):
        wheel(tmp_path / "wheels", "layer", version, {"layer.py": f"PACE = {pace}"})
    (tmp_path / "run.py").write_text(FAKE_RUN)
    with commands_here((sys.executable, str(tmp_path / "run.py"))):
        options = ("--controls=0", "--steps=120", "--block-steps=10")
        assert search(tmp_path, "layer==1.0..1.1", *options, torch=FAKE_TORCH) == 0
    answer = capfd.readouterr().out.partition("The first bad version of layer is ")[2]
    first, evidence = (line.strip() for line in answer.splitlines())
    assert first == "1.1."
    assert evidence.startswith("1.1 ") and evidence.endswith("Without a compiler it is slower.")
    data_dir = DataDir(tmp_path / "data")
    assert len([*experiments(data_dir)]) == 1
    assert [one.name for one in uv_environments(data_dir)] == ["test-layer-1.0", "test-layer-1.1"]


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_the_first_slow_version_is_found_in_few_experiments(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(8):
        kind, needs = (SLOW if number >= 5 else GOOD), ("no-such-package" if number == 3 else "")
        plant(tmp_path / "wheels", f"1.{number}", kind, needs)
    assert search(tmp_path, "layer==1.0..1.7") == 0
    told = capfd.readouterr().out
    assert "layer: 7 versions after 1.0, up to 1.7; about 4 experiments" in told
    answer = told.partition("The first bad version of layer is ")[2]
    first, *evidence = answer.splitlines()
    assert first == "1.5."
    found = {line.split()[0]: line for line in evidence}
    assert list(found) == ["1.3", "1.4", "1.5", "1.7"]
    assert "is open, because it could not be tried: uv could not make" in found["1.3"]
    assert re.search(r"1\.4 is good \(\S+\): test-layer-1\.4 trains this at ", found["1.4"])
    assert found["1.5"].endswith("Without a compiler it is slower.")

    data_dir = DataDir(tmp_path / "data")
    assert len([*experiments(data_dir)]) == 3  # 1.7, 1.4 and 1.5; 1.3 cannot be installed
    kept = [one.name for one in uv_environments(data_dir)]
    assert kept == [f"test-layer-1.{number}" for number in (0, 4, 5, 7)]


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_a_wrong_version_behind_one_that_cannot_be_installed_is_narrowed_to_both(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for version, kind, needs in [("1.0", GOOD, ""), ("1.1", GOOD, "no-such-package"),
                                 ("1.2", WRONG, ""), ("1.3", WRONG, "")]:  # fmt: skip
        plant(tmp_path / "wheels", version, kind, needs)
    assert search(tmp_path, "layer==1.0,1.1,1.2,1.3", "--fail-if=parity") == 4
    told = capfd.readouterr().out
    assert "The first bad version of layer is one of 1.1, 1.2." in told
    assert told.count("Without a compiler it computes something else.") == 4  # 1.3 and 1.2, twice


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_without_a_fault_of_the_last_version_nothing_is_sought(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for version in ("1.0", "1.1", "1.2"):
        plant(tmp_path / "wheels", version, GOOD)
    assert search(tmp_path, "layer==1.0..1.2", "--fail-if=slower-than:1.0>50%") == 4
    assert (
        "layer 1.2 shows no fault compared with 1.0: there is nothing to search for."
        in capfd.readouterr().out
    )
    assert len([*experiments(DataDir(tmp_path / "data"))]) == 1


@pytest.mark.heavy
@pytest.mark.usefixtures("index")
def test_the_versions_are_those_that_the_index_offers(tmp_path: Path) -> None:
    for version in ("1.0", "1.2", "1.10", "1.11rc1", "1.11", "2.0"):
        plant(tmp_path / "wheels", version, GOOD)
    assert released_between("layer", "1.0.0", "1.11") == ["1.0", "1.2", "1.10", "1.11"]
    with pytest.raises(RunnerError, match=r"layer 1\.0 is not newer than 1\.2: name the older"):
        released_between("layer", "1.2", "1.0")
    with pytest.raises(RunnerError, match=r"the package index has no layer 1\.7 for this Python"):
        released_between("layer", "1.0", "1.7")


@pytest.mark.parametrize("count", [2, 3, 10, 40])
def test_the_search_asks_as_often_as_the_logarithm_says(count: int) -> None:
    for first in range(1, count):
        asked = list[int]()

        def is_bad(number: int, first: int = first, asked: list[int] = asked) -> bool:
            asked.append(number)
            return number >= first

        assert first_bad(count, is_bad) == (first - 1, first)
        assert 2 ** (len(asked) - 1) < count  # 40 versions: at most 6


def test_what_nobody_can_judge_remains_between_good_and_bad() -> None:
    known = {1: False, 2: None, 3: None, 4: True, 5: True}
    assert first_bad(7, lambda number: known[number]) == (1, 4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.9.1..2.14.1", Versions("torch", ("2.9.1", "2.14.1"), True)),
        ("transformers==4.50,5.0", Versions("transformers", ("4.50", "5.0"), False)),
        ("torch==2.9.1+cpu..2.15.0.dev20261101",
         Versions("torch", ("2.9.1+cpu", "2.15.0.dev20261101"), True)),
    ],
)  # fmt: skip
def test_versions_are_read(text: str, expected: Versions) -> None:
    assert read_versions(text) == expected


def test_many_requirements_are_read_and_a_python_is_none() -> None:
    """The text is longer than the name of a file may be."""
    words = [f"package-{number}==1.0" for number in range(20)]
    assert _requirements([f"mine={' '.join(words)}"]) == ("mine", "\n".join(words) + "\n")
    with pytest.raises(InvalidSpec, match="must be one NAME=REQUIREMENTS with --bisect-versions"):
        _requirements([f"mine={sys.executable}"])


def test_a_limit_beside_a_local_build_is_read() -> None:
    expected = Condition(name="slower-than", limit=5, of="2.9.1+cpu")
    assert parse_conditions("slower-than:2.9.1+cpu>5%") == [expected]


@pytest.mark.parametrize("text", ["2.9", "2.9..", "1..2..3", "1,1", "==1..2", "a b==1..2", "1;2"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must read A\.\.B or A,B,C"):
        read_versions(text)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--fail-if=slower"], "must be parity, 'compile>SECONDS' or 'slower-than:1.0>PERCENT'"),
        (["--fail-if=slower-than:1.1>2%"], "or 'slower-than:1.0>PERCENT'"),
        (["--environment=other=x"], "must be one NAME=REQUIREMENTS with --bisect-versions"),
    ],
)
def test_what_the_search_cannot_use_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], words: str
) -> None:
    (tmp_path / "wheels").mkdir()
    assert search(tmp_path, "layer==1.0,1.1", *more) == 2
    assert words in capsys.readouterr().err
