"""Commands that queue experiments do not wait for torch: what only torch can tell is checked while
the runs load."""

import sys
from pathlib import Path

import pytest

from breakeven.runner.checks import refused_experiments
from breakeven.runner.commands import cli
from breakeven.runner.experiments.queue import Experiment, experiments
from breakeven.runner.machine import capabilities
from breakeven.runner.machine.capabilities import likely_capabilities
from breakeven.runner.protocol.data_dir import DataDir
from tests.helpers.machine import MACHINE, keep

MODELS = ("--models=AlbertForMaskedLM", "--scenarios=speed")


@pytest.fixture(autouse=True)
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that would import torch fails."""
    fails = (sys.executable, "-c", "raise SystemExit('torch was called')")
    monkeypatch.setattr(capabilities, "PROBE_COMMAND", fails)
    monkeypatch.setattr(refused_experiments, "COMMAND", fails)


def queued(data_dir: DataDir, *words: str) -> list[Experiment]:
    assert cli.main([*words, f"--data-folder={data_dir.path}"]) == 0
    return list(experiments(data_dir))


@pytest.mark.parametrize(
    "words",
    [
        ("queue", "add"),
        ("queue", "add", "--backends=inductor:mode=max-autotune"),
        ("queue", "suite", "huggingface", *MODELS),
    ],
)
def test_what_torch_was_never_called_for_is_queued_at_once_and_checked_by_the_baseline(
    data_dir: DataDir, words: tuple[str, ...]
) -> None:
    for entry in queued(data_dir, *words):
        assert [run.is_unchecked for run in entry.runs] == [
            True,
            *[False] * (len(entry.runs) - 1),
        ]


def test_only_settings_of_their_own_are_left_to_check_once_torch_has_described_the_machine(
    data_dir: DataDir,
) -> None:
    data_dir.make()
    keep(data_dir, MACHINE)
    usual, other = (
        queued(data_dir, "queue", "add"),
        ("queue", "add", "--set=training.optimizer_options=eps=1e-7"),
    )
    assert [entry.runs[0].is_unchecked for entry in usual] == [False]
    assert [entry.runs[0].is_unchecked for entry in queued(data_dir, *other)] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--backends=indcutor", "; did you mean 'inductor'?"),
        ("--backends=tvm", "needs the package tvm, which is not installed here"),
        ("--optimizer=Adamm", "did you mean 'Adam'?"),
        ("--set=cpus=9999", "must be CPUs of this machine"),
    ],
)
def test_what_looks_mistyped_is_refused_before_torch_is_called(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str], option: str, said: str
) -> None:
    assert cli.main(["queue", "add", option, f"--data-folder={data_dir.path}"]) == 2
    assert said in capsys.readouterr().err
    assert not list(experiments(data_dir))


def test_a_backend_of_ones_own_and_a_copy_of_a_waiting_experiment_are_checked_as_well(
    data_dir: DataDir,
) -> None:
    (entry,) = queued(data_dir, "queue", "add", "--backends=zzzz")
    assert (
        cli.main(["queue", "duplicate", entry.experiment_id, f"--data-folder={data_dir.path}"]) == 0
    )
    assert [entry.runs[0].is_unchecked for entry in experiments(data_dir)] == [True, True]


@pytest.mark.parametrize(
    ("seen", "built_for", "device"),
    [
        (("device file dev/nvidia0",), "cuda: Optional[str] = '13.0'", "cuda:0"),
        (("device file dev/nvidia0",), "cuda: Optional[str] = None", "cpu"),
        ((), "cuda: Optional[str] = '13.0'", "cpu"),
        (("amd sys/class/kfd/kfd/topology/nodes/1",), "hip: Optional[str] = '6.4'", "cuda:0"),
        (("amd sys/class/kfd/kfd/topology/nodes/1",), "cuda: Optional[str] = '13.0'", "cpu"),
    ],
)
def test_without_torch_a_gpu_is_likely_that_is_there_and_that_torch_was_built_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seen: tuple[str, ...],
    built_for: str,
    device: str,
) -> None:
    (tmp_path / "version.py").write_text(f"__version__ = '2'\n{built_for}\n")
    torch = type("Found", (), {"origin": str(tmp_path / "__init__.py")})
    monkeypatch.setattr(capabilities, "find_spec", lambda name: torch if name == "torch" else None)
    monkeypatch.setattr(capabilities, "visible_hardware", lambda: seen)
    monkeypatch.setattr(capabilities.platform, "machine", lambda: "x86_64")
    assert likely_capabilities().devices[-1].id == device
