"""A suite run: its summary and what changed against an earlier one, worked out by hand."""

import csv
import io
import json
import math
import re
from dataclasses import replace

import pandas as pd
import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.states import RunState
from breakeven.storage import queries
from breakeven.storage.__main__ import main
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.speedups import Ratio
from breakeven.storage.suite_runs.cells import outcomes
from breakeven.storage.suite_runs.groups import (
    Cell,
    Group,
    Outcome,
    SuiteChanges,
    groups,
    suite_changes,
)
from breakeven.storage.terminal.suites import exit_status
from breakeven.storage.words.suites import other_conditions
from tests.helpers.suites import LOSSES, SuiteRecorder, spec

pytestmark = pytest.mark.heavy  # whole commands over stores of their own: many seconds


@pytest.fixture
def record(data_dir: DataDir) -> SuiteRecorder:
    return SuiteRecorder(data_dir)


def read(data_dir: DataDir, suite_run: str = "now") -> list[Outcome]:
    with Store.in_memory(data_dir) as store:
        return outcomes(store, suite_run)


def summed(data_dir: DataDir) -> Group:
    (group,) = groups(read(data_dir))
    return group


def test_the_summary_is_that_of_its_cells(data_dir: DataDir, record: SuiteRecorder) -> None:
    record.speed("Fast", 0.1, compile=2.0, memory=50)  # 2x, half the memory
    record.speed("Slow", 0.8, compile=4.0, memory=200)  # 1/4, twice the memory
    for model in ("Fast", "Slow"):
        record.accuracy(model, "pass")
    group = summed(data_dir)
    assert group.row == ("inductor", "float32", "training")
    # sqrt(2 x 1/4): the slowdown is not clipped to 1.
    assert group.speedup is not None and group.speedup.median == pytest.approx(0.5**0.5)
    assert group.pass_rate == 1.0
    assert group.mean_compile_seconds == pytest.approx(3.0)
    # sqrt(100/50 x 100/200)
    assert group.memory is not None and group.memory.median == pytest.approx(1.0)
    assert group.failures == {}


def test_failed_models_have_no_speed(data_dir: DataDir, record: SuiteRecorder) -> None:
    record.speed("Huge", 0.1, state=RunState.OUT_OF_MEMORY)
    assert summed(data_dir).pass_rate is None, "nothing was checked"
    for model, seconds, status in (("Right", 0.1, "pass"), ("Wrong", 0.02, "fail_accuracy")):
        record.speed(model, seconds)
        record.accuracy(model, status)
    record.speed("Other", 0.02, losses=[math.nan] * len(LOSSES))
    group = summed(data_dir)
    assert group.speedup is not None and group.speedup.median == pytest.approx(2.0)
    assert (group.pass_rate, group.num_counted) == (0.5, 1)
    assert group.failures == {
        "Huge": "it did not finish: out of memory, all steps done",
        "Other": "it learns something else: parity is broken",
        "Wrong": "the accuracy check says fail_accuracy",
    }


def test_other_suite_runs_take_no_part(data_dir: DataDir, record: SuiteRecorder) -> None:
    """The latest of a repeated cell counts."""
    record.speed("Other", 0.1, suite_run="before")
    record.speed("Model", 0.1, state=RunState.FAILED)
    record.speed("Model", 0.05)
    (outcome,) = read(data_dir)
    assert (outcome.cell.model, outcome.failure) == ("Model", None)
    assert outcome.counted_speedup.median == pytest.approx(4.0)
    with Store.in_memory(data_dir) as store:
        runs = queries.list_suite_runs(store)
        with pytest.raises(NotInStore, match="no suite run 'never'"):
            outcomes(store, "never")
    assert list(runs["suite_run"]) == ["now", "before"]
    assert list(runs["num_experiments"]) == [2, 1]


def test_an_unfinished_suite_run_shows_its_cells(data_dir: DataDir, record: SuiteRecorder) -> None:
    record.queued("Model")
    with Store.in_memory(data_dir) as store:
        (outcome,) = outcomes(store, "now")
        assert not outcome.is_over and outcome.status is None
        assert groups([outcome])[0].num_open == 1
        for run in data_dir.run_dirs():
            run.write_exit(Exit.now(RunState.FAILED, "as the test says", 1))
        store.ingest_all()
        assert [current.status for current in outcomes(store, "now")] == ["model_fail_to_load"]


def test_cold_and_warm_compiling_of_cachebench(data_dir: DataDir, record: SuiteRecorder) -> None:
    cache_spec = spec("cache", "Model", cache={"repeats": 1, "steps": 20})
    record.count += 1
    for label, compile in (("inductor-cold-1", 8.0), ("inductor-warm-1", 2.0)):
        recording = record._recording(label, cache_spec)
        recording.blocks([0.1, 0.1], LOSSES[:20], compile).end()
    record._recording("baseline", cache_spec).blocks([0.1, 0.1], LOSSES[:20]).end()
    group = summed(data_dir)
    assert group.compile_time_saved == pytest.approx(1 - 2 / 8)
    assert group.outcomes[0].cold_seconds == pytest.approx(8.0)


def changed(data_dir: DataDir) -> SuiteChanges:
    return suite_changes(read(data_dir), read(data_dir, "before"))


def kinds(changes: SuiteChanges) -> list[tuple[str, str, bool]]:
    return [(change.cell.model, change.kind, change.is_worse) for change in changes.changes]


def test_each_regression_is_named(data_dir: DataDir, record: SuiteRecorder) -> None:
    record.accuracy("Checked", "pass", "before")
    record.accuracy("Checked", "fail_accuracy")
    record.speed("Slower", 0.1, suite_run="before")
    record.speed("Slower", 0.125)
    record.speed("Longer", 0.1, compile=4.0, suite_run="before")
    record.speed("Longer", 0.1, compile=6.0)
    record.speed("Bigger", 0.1, memory=100, suite_run="before")
    record.speed("Bigger", 0.1, memory=125)
    record.speed("Dying", 0.1, suite_run="before")
    record.speed("Dying", 0.1, state=RunState.FAILED)
    # 4 % slower within intervals of 10 %, 20 % longer to compile, 4 % more memory: chance.
    noisy = [0.1, 0.09, 0.11, 0.1, 0.085, 0.115, 0.1, 0.105]
    record.speed("Noisy", noisy, compile=4.0, memory=100, suite_run="before")
    record.speed("Noisy", [1.04 * seconds for seconds in noisy], compile=4.8, memory=104)
    record.speed("Better", 0.1, suite_run="before")
    record.speed("Better", 0.05)
    record.speed("Gone", 0.1, suite_run="before")
    record.speed("New", 0.1)
    changes = changed(data_dir)
    assert [cell.model for cell in changes.only_before] == ["Gone"]
    assert [cell.model for cell in changes.only_now] == ["New"]
    assert kinds(changes)[-1] == ("Better", "speed", False), "what got worse comes first"
    assert "Better" not in [change.cell.model for change in changes.regressions]
    assert set(kinds(changes)[:-1]) == {
        ("Checked", "accuracy", True),
        ("Slower", "speed", True),
        ("Longer", "compile", True),
        ("Bigger", "memory", True),
        ("Dying", "speed", True),
    }
    texts = {change.cell.model: (change.before, change.now) for change in changes.changes}
    assert texts["Checked"] == ("pass", "fail_accuracy")
    assert texts["Slower"] == ("2.00x (2.00 to 2.00)", "1.60x (1.60 to 1.60)")
    assert texts["Longer"] == ("4.00 s", "6.00 s")
    assert texts["Bigger"] == ("1.00x", "0.80x")
    assert texts["Dying"] == ("2.00x (2.00 to 2.00)", "it did not finish: failed, all steps done")
    # Slower 0.8, Better 2, Noisy 1 / 1.04, Longer and Bigger 1: the fifth root of their product.
    (mean,) = changes.means.values()
    assert mean.ratio.median == pytest.approx((0.8 * 2 / 1.04) ** (1 / 5))
    assert mean.ratio.n == 5


def test_a_change_says_if_the_device_was_disturbed_in_either_run() -> None:
    cell = Cell("Model", "float32", "training", "inductor")
    calm = Outcome(cell=cell, experiments={}, is_over=True, status="pass", compile_seconds=4.0)
    busy = replace(calm, status="fail_accuracy", compile_seconds=9.0, warnings=("it was hot",))
    for now, before in ((busy, calm), (calm, busy)):
        warnings = {
            change.kind: change.warnings for change in suite_changes([now], [before]).changes
        }
        assert warnings == {"compile": ("it was hot",), "accuracy": ()}


def printed(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str]:
    status = main(["show", *arguments, f"--data-folder={data_dir.path}"])
    return status, capsys.readouterr().out


def test_the_terminal_shows_summary_cells_and_changes(
    data_dir: DataDir, record: SuiteRecorder, capsys: pytest.CaptureFixture[str]
) -> None:
    record.speed("Model", 0.1, memory=80)
    record.accuracy("Model", "pass")
    status, text = printed(data_dir, capsys, "now")
    assert status == 0
    for said in ("100.0 % (1 of 1)", "2.00x (2.00 to 2.00)", "1.25x"):
        assert said in text

    record.speed("Model", 0.05, suite_run="before")
    status, text = printed(data_dir, capsys, "now", "--against=before")
    assert status == 5
    assert "WORSE  Model, float32, training, inductor: speed: 4.00x" in text
    assert (
        "inductor, float32, training: speedups are 0.50x the earlier ones over 1 model: "
        "inconclusive"
    ) in text


def noisy(low: float, high: float) -> Ratio:
    return Ratio(median=(low * high) ** 0.5, low=low, high=high, p_value=0.001, n=20)


@pytest.mark.parametrize(
    ("now", "kind"),
    [
        (noisy(0.2, 3.0), "unclear"),  # 2.6 times as slow, with intervals that meet
        (Ratio(median=0.5, low=None, high=None, p_value=None, n=3), "unclear"),
        (noisy(1.9, 2.1), "nothing"),  # the change is known to 7 %
        (noisy(0.45, 0.55), "worse"),
    ],
)
def test_a_slowdown_that_a_wide_interval_hides_is_not_called_nothing(now: Ratio, kind: str) -> None:
    cell = Cell("Model", "float32", "training", "inductor")
    before = Outcome(cell=cell, experiments={"speed": "x"}, is_over=True, speedup=noisy(1.9, 2.1))
    after = replace(before, speedup=now)
    changes = suite_changes([after], [before])
    assert [change.cell for change in changes.regressions] == ([cell] if kind == "worse" else [])
    assert list(changes.unclear) == ([cell] if kind == "unclear" else [])
    assert exit_status([after], changes) == {"unclear": 1, "nothing": 0, "worse": 5}[kind]


def test_a_check_that_somebody_stopped_is_not_taken_for_passed() -> None:
    cell = Cell("Model", "float32", "training", "inductor")
    stopped = Outcome(cell=cell, experiments={"accuracy": "x"}, is_over=True, status=None)
    assert exit_status([stopped], None) == 1
    assert exit_status([replace(stopped, status="pass")], None) == 0


def test_runs_of_other_devices_and_torches_are_compared_with_a_warning() -> None:
    runs = pd.DataFrame(
        [("now", "H100", "2.13"), ("before", "H100", "2.11"), ("other", "CPU", "2.13")],
        columns=["suite_run", "device_name", "torch_version"],
    )
    assert other_conditions(runs, "now", "now") == ""
    assert other_conditions(runs, "now", "before") == "torch 2.11 before, 2.13 now"
    assert other_conditions(runs, "now", "other") == "device CPU before, H100 now"


def test_the_exit_status_says_what_checks_come_to_and_the_text_which_models_a_mean_rests_on(
    data_dir: DataDir, record: SuiteRecorder, capsys: pytest.CaptureFixture[str]
) -> None:
    for model, seconds in (("A", 0.1), ("B", 0.101), ("C", 0.099), ("D", 0.1), ("Odd", 1.0)):
        record.speed(model, seconds)
    record.queued("Model")
    status, text = printed(data_dir, capsys, "now")
    assert status == 1
    # Four models at 2x and one at 0.2x.
    assert re.search(r"1\.26x \(0\.35 to 4\.5\d\) +inconclusive +5", text)
    assert "inductor, float32, training: inconclusive, but faster without Odd (2.00x)" in text
    record.accuracy("Wrong", "fail_accuracy")
    assert printed(data_dir, capsys, "now")[0] == 3


def exported(data_dir: DataDir, format: str) -> str:
    file = data_dir.path / "exported"
    assert (
        main(
            [
                "export",
                "now",
                f"--format={format}",
                f"--output={file}",
                f"--data-folder={data_dir.path}",
            ]
        )
        == 0
    )
    return file.read_text()


def test_a_suite_run_is_exported(data_dir: DataDir, record: SuiteRecorder) -> None:
    record.speed("BertForMaskedLM", 0.1, compile=3.0, memory=50)
    record.accuracy("BertForMaskedLM", "pass")
    record.accuracy("T5Small", "fail_accuracy")
    (row,) = csv.DictReader(io.StringIO(exported(data_dir, "harness-performance-csv")))
    assert (row["dev"], row["name"], row["batch_size"]) == ("cpu", "BertForMaskedLM", "8")
    assert row["tag"] == "inductor-float32-training"
    numbers = [row[name] for name in ("speedup", "abs_latency", "compilation_latency")]
    assert [float(number) for number in numbers] == [2.0, 100.0, pytest.approx(3.0)]
    assert float(row["compression_ratio"]) == 2.0

    rows = list(csv.DictReader(io.StringIO(exported(data_dir, "harness-accuracy-csv"))))
    assert {row["name"]: row["accuracy"] for row in rows} == {
        "BertForMaskedLM": "pass",
        "T5Small": "fail_accuracy",
    }

    records = json.loads(exported(data_dir, "hud-json"))
    assert {record["model"]["origins"][0] for record in records} == {"huggingface"}
    (accuracy,) = [
        hud_record["metric"] for hud_record in records if hud_record["metric"]["name"] == "accuracy"
    ]
    assert accuracy["extra_info"]["benchmark_values"] == ["pass"]

    (times,) = json.loads(exported(data_dir, "cachebench-json"))
    assert times["model"]["origins"] == ["huggingface"]
    assert times["metric"]["benchmark_values"] == [pytest.approx(3.0)]
