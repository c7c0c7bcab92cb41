"""`compare --json` and `explain --json` print what the terminal prints, with every digit."""

import json
import math
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.storage.__main__ import main
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import VALUES
from breakeven.storage.index.store import Store
from breakeven.storage.terminal.as_json import plain
from tests.helpers import correctness_journals
from tests.helpers.comparisons import warnings_of
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses

pytestmark = pytest.mark.heavy
SPEC = experiment_spec(num_steps=100, backends=("inductor", "eager", "aot_eager"))


def printed(data_dir: DataDir, command: str, *more: str, capsys: Any) -> tuple[dict[str, Any], str]:
    """What a command prints, and says on stderr."""
    main([command, EXPERIMENT_ID, "--json", "--data-folder", str(data_dir.path), *more])
    out, err = capsys.readouterr()

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(out, parse_constant=refuse), err


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    """inductor is a third faster, eager slower, aot_eager fails with a loss that is no number."""
    data_dir = DataDir(tmp_path_factory.mktemp("recorded"))
    losses = falling_losses(100)
    for label, seconds in (("baseline", 0.2), ("control", 0.2), ("inductor", 0.15), ("eager", 0.3)):
        run = Recording(data_dir.runs, label, SPEC).claim().start()
        compile_seconds = 0.0 if label in ("baseline", "control") else 3.0
        run.blocks([seconds] * 10, losses, compile_seconds).end()
    failed = Recording(data_dir.runs, "aot_eager", SPEC).claim().start()
    failed.blocks([0.2], [math.nan] * 10).end(RunState.FAILED, "exit status 1")
    return data_dir


def test_json_has_every_digit(recorded: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    report, _ = printed(recorded, "show", capsys=capsys)
    with Store.in_memory(recorded) as store:
        comparison = compare(store, EXPERIMENT_ID)
    assert [run["label"] for run in report["runs"]] == [
        result.label for result in comparison.results
    ]
    for run, result in zip(report["runs"], comparison.results, strict=True):
        assert VALUES.keys() <= run["numbers"].keys()
        for name in VALUES:
            value, expected = run["numbers"][name], result.value(name)
            is_text = isinstance(expected, float) and not math.isfinite(expected)
            assert isinstance(value, str) if is_text else value == expected, name
    assert report["noise_floor"] == comparison.noise_floor
    serious = [warning for warning in report["warnings"] if warning["severity"] == "serious"]
    assert tuple(warning["words"] for warning in serious) == warnings_of(comparison)
    assert [run["reason"] for run in report["runs"]] == [None] * 4 + ["exit status 1"]
    inductor = report["runs"][2]
    assert inductor["speedup"]["median"] == inductor["numbers"]["speedup"] == 0.2 / 0.15
    assert inductor["parity"]["verdict"] == inductor["numbers"]["parity"] == "holds"
    numbers = {run["label"]: run["numbers"] for run in report["runs"]}
    assert numbers["eager"]["break_even_steps"] == "never"
    assert numbers["aot_eager"]["final_loss"] == "nan"
    assert numbers["aot_eager"]["max_ratio_to_band"] == "infinite"
    assert numbers["baseline"]["speedup"] is None
    assert plain({"a": -math.inf, "b": (1.5, None)}) == {"a": "-infinite", "b": [1.5, None]}


def test_gate_reasons_are_no_json(recorded: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor are profiles of runs without one."""
    _, reasons = printed(recorded, "show", "--fail-if=slower", capsys=capsys)
    assert "FAIL eager: slower" in reasons
    explanation, _ = printed(recorded, "explain", capsys=capsys)
    assert explanation["why_not"].startswith("No run was profiled")
    labels = ["baseline", "control", "inductor", "eager", "aot_eager"]
    assert [profile["label"] for profile in explanation["profiles"]] == labels


def test_json_has_each_check(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    correctness_journals.record(data_dir, "inductor", correctness_journals.passing())
    report, _ = printed(data_dir, "show", capsys=capsys)
    assert {(check["label"], check["status"]) for check in report["checks"]} >= {
        ("inductor", "pass")
    }
