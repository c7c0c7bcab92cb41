"""The same training night after night: what is one series, and what is told of it."""

import shutil
from dataclasses import replace
from typing import Any

import pytest

from breakeven.runner.arguments.conditions import parse_conditions
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.states import RunState
from breakeven.storage.__main__ import main
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import backend_rows, catalog, compute_missing
from breakeven.storage.library.summary import workload_key
from breakeven.storage.library.trends import VERSIONS, Point, Series, trends
from breakeven.storage.terminal.trends import CONDITIONS, METAVAR
from tests.helpers.journals import record_experiment
from tests.helpers.nights import NOISE, SPEC, record_night, record_slower_torch

pytestmark = pytest.mark.heavy  # whole commands over stores of their own: many seconds


def computed_trends(data_dir: DataDir, quantity: str = "speedup") -> list[Series]:
    with Store.open(data_dir) as store:  # which keeps what it computed for the next look
        store.ingest_all()
        compute_missing(store, 100.0)
        return trends(backend_rows(store, catalog(store)), quantity)


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    """Eight nights at about 0.1 s a step, and four at 0.125 with the torch that came then."""
    data_dir = DataDir(tmp_path_factory.mktemp("slower"))
    record_slower_torch(data_dir)
    return data_dir  # whose summaries the first command keeps for all others


def test_a_step_is_told_with_what_changed_at_it_and_worse_is_worse(slower: DataDir) -> None:
    (series,) = computed_trends(slower)
    (step,) = series.steps
    assert series.points[step.index].name == "night 9"
    # From 2x to 1.6x; the means of eight and four nights are each within a percent.
    assert step.ratio == pytest.approx(0.8, abs=0.01)
    assert series.worsening(step) == pytest.approx(0.2, abs=0.01)
    assert series.changed(step) == {"torch": ("2.12.0", "2.13.0")}
    (times,) = computed_trends(slower, "step_seconds")
    (step,) = times.steps
    assert times.worsening(step) == pytest.approx(0.25, abs=0.02), "longer is worse"


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({"name": "another"}, True),
        ({"backends": ("eager",)}, True),
        ({"checkpoints": replace(SPEC.checkpoints, every=1)}, True),
        ({"training": replace(SPEC.training, learning_rate=1e-2)}, False),
        ({"training": replace(SPEC.training, seed=5, max_steps=40)}, True),
        ({"training": replace(SPEC.training, clip_norm=1)}, False),
        ({"cpu_threads": 1}, False),
        ({"model": replace(SPEC.model, dropout="off")}, False),
        ({"scenario": "speed"}, False),
    ],
)
def test_what_a_step_does_is_the_same_or_not(changes: dict[str, Any], is_same: bool) -> None:
    assert (workload_key(replace(SPEC, **changes)) == workload_key(SPEC)) is is_same


def gate(data_dir: DataDir, *arguments: str) -> int:
    return main(["trend", f"--data-folder={data_dir.path}", *arguments])


def test_a_worse_level_fails_the_gate(slower: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate(slower, "--fail-if=worse>2%") == 5
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL"))
    assert line.startswith(
        "FAIL speedup of inductor: bert-tiny, reviews, float32, batch 8, Test CPU"
    )
    assert "worse since 2026-11-09 (20261109-" in line
    assert "2.00x to 1.60x, -19." in line or "2.00x to 1.60x, -20." in line
    assert line.endswith("; torch 2.12.0 to 2.13.0")
    assert gate(slower, "--fail-if=worse>25%") == 0, "it is not so much"
    assert gate(slower, "--fail-if=worse", "--within=3") == 0, "it was four nights ago"
    assert gate(slower, "--of=step_seconds", "--fail-if=worse") == 5
    assert gate(slower, "--torch=2.13.0", "--fail-if=worse") == 1, "of these nobody can tell"
    capsys.readouterr()
    assert gate(slower) == 0
    said = capsys.readouterr().out
    assert "1.60x now; 12 experiments, 2026-11-01 to 2026-11-12" in said
    assert "FAIL" not in said


def series(*values: float) -> Series:
    points = [
        Point(
            experiment_id=str(night),
            name="",
            submitted=None,
            value=value,
            low=None,
            high=None,
            parity="holds",
            versions=dict.fromkeys(VERSIONS),
        )
        for night, value in enumerate(values)
    ]
    return Series("speedup", "work", "title", "device", "inductor", tuple(points))


def series_of(*levels: float) -> Series:
    """Eight nights at each level of a speedup, with a noise of about half a percent."""
    return series(*(level * NOISE[night % 6] for level in levels for night in range(8)))


def test_one_night_out_of_line_is_no_step() -> None:
    with_outlier = series(*NOISE, 1 / 1.5)
    assert with_outlier.steps == [] and with_outlier.is_out_of_line


def test_several_small_steps_add_up_to_a_worse_level() -> None:
    """Each of them is by less than the limit; all together are 5.7 %, and the last two 3.8 %."""
    series = series_of(1.0, 0.981, 0.962, 0.943)
    assert [round(-series.worsening(step), 2) for step in series.steps] == [-0.02] * 3
    assert not any(series.worsening(step) > 0.025 for step in series.steps)
    worse = series.regression(0.025, within=30)
    assert worse is not None and (worse.before.first, worse.index) == (0, 24)
    assert series.worsening(worse) == pytest.approx(0.057, abs=0.002)
    recent = series.regression(0.025, within=20)
    assert recent is not None and recent.before.first == 8
    assert series.regression(0.025, within=10) is None, "only the last of them is so new"


def test_what_came_back_to_where_it_was_is_no_worse() -> None:
    assert series_of(1.0, 0.8, 1.0).regression(0.01, within=24) is None
    lost = series_of(1.0, 1.2, 1.0).regression(0.01, within=24)
    assert lost is not None, "what was gained is lost again"
    assert series_of(1.0, 0.8).regression(0.01, within=24) is not None


def test_the_gate_follows_the_newest_nights(
    slower: DataDir, data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    """One fails, one learns something else, and then the device has another name for a night."""
    shutil.copytree(slower.path, data_dir.path)
    assert gate(data_dir, "--fail-if=worse,failed,parity", "--within=3") == 0
    torch = {"versions": {"torch": "2.13.0"}}
    crashed = record_night(data_dir, 13, 0.125, **torch)
    fail(data_dir, crashed)
    assert gate(data_dir, "--fail-if=worse", "--within=3") == 0
    assert gate(data_dir, "--fail-if=failed") == 5
    assert f"the newest experiment ({crashed}) is failed" in capsys.readouterr().out
    record_experiment(
        data_dir.runs,
        replace(SPEC, controls=1),
        "20261114-093015-123456-7f3a",
        backend_offset=0.5,
        environment=torch,
    )
    assert gate(data_dir, "--fail-if=failed") == 0, "a newer one came to its end"
    assert gate(data_dir, "--fail-if=parity") == 5
    assert "breaks parity" in capsys.readouterr().out
    record_night(data_dir, 15, 0.2, device_name="Renamed CPU")
    assert gate(data_dir, "--fail-if=worse", "--within=3") == 1
    assert "the longest series has 1, and it takes 11" in capsys.readouterr().out
    record_night(data_dir, 16, 0.125)
    assert gate(data_dir, "--fail-if=worse", "--within=3") == 0, "it has its name again"


def fail(data_dir: DataDir, experiment_id: str, backend: str = "inductor") -> None:
    run = data_dir.run_dir(f"{experiment_id}.{backend}")
    run.exit_file.unlink()
    run.write_exit(Exit.now(RunState.FAILED, "it broke", 1))


@pytest.mark.slow
def test_a_failure_on_one_device_is_taken_back_by_that_device_alone(data_dir: DataDir) -> None:
    def fails(day: int, device: str | None) -> str:
        environment = {"device_name": device} if device else {}
        crashed = record_night(data_dir, day, 0.1, **environment)
        fail(data_dir, crashed)
        if device is None:  # before it could say on what
            for label in ("baseline", "inductor"):
                data_dir.run_dir(f"{crashed}.{label}").events_file.unlink()
        return crashed

    def failures() -> dict[str, str | None]:
        return {
            of_device.device: of_device.failure and of_device.failure.experiment_id
            for of_device in computed_trends(data_dir)
        }

    for day, device in enumerate(("A", "B"), start=1):
        record_night(data_dir, day, 0.1, device_name=device)
    on_a = fails(3, "A")
    record_night(data_dir, 4, 0.1, device_name="B")
    assert failures() == {"A": on_a, "B": None}
    early = fails(5, None)
    assert failures() == {"A": early, "B": early}, "it may have been either"
    record_night(data_dir, 6, 0.1, device_name="A")
    assert failures() == {"A": None, "B": early}
    on_b = fails(7, "B")
    assert failures() == {"A": None, "B": on_b}


@pytest.mark.parametrize("renamed", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_backend_that_never_gave_a_number_is_no_backend_that_passes(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str], renamed: bool
) -> None:
    """On a device with a new name, or from its first night on, beside a backend that works."""
    device = "Renamed CPU" if renamed else "Test CPU"
    both = replace(SPEC, backends=("inductor", "eager"))
    record_night(data_dir, 1, 0.1, SPEC if not renamed else both)
    crashed = record_night(data_dir, 2, 0.1, both, device_name=device)
    fail(data_dir, crashed, "eager")
    assert gate(data_dir, "--fail-if=failed") == 5
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL"))
    assert line == (
        f"FAIL eager: bert-tiny, reviews, float32, batch 8, {device}: the newest "
        f"experiment ({crashed}) is failed, so it has no number"
    )
    record_night(data_dir, 3, 0.1)
    assert gate(data_dir, "--fail-if=failed") == 0, "the newest night does not try it"


def test_a_night_that_fails_after_it_broke_parity_has_broken_it(data_dir: DataDir) -> None:
    spec = replace(SPEC, controls=1)
    record_night(data_dir, 1, 0.1, spec)
    crashed = "20261102-093015-123456-7f3a"
    record_experiment(data_dir.runs, spec, crashed, backend_offset=0.5)
    assert gate(data_dir, "--fail-if=parity") == 5
    fail(data_dir, crashed)
    run = data_dir.run_dir(f"{crashed}.inductor")
    journal = run.events_file.read_text().splitlines(keepends=True)
    few = next(n for n, line in enumerate(journal) if '"kind":"block"' in line) + 1
    run.events_file.write_text("".join(journal[:few]))
    assert gate(data_dir, "--fail-if=parity") == 5


def test_nothing_to_judge_is_no_pass(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    record_night(data_dir, 1, 0.1)
    assert gate(data_dir, "--fail-if=worse") == 1
    assert "the longest series has 1, and it takes 11" in capsys.readouterr().out
    assert gate(data_dir, "--fail-if=failed") == 0
    assert gate(data_dir, "--fail-if=failed", "--model=bert-tyni") == 1
    assert gate(data_dir) == 0, "nothing was asked"


def test_conditions_are_read_and_others_refused() -> None:
    conditions = parse_conditions("worse > 0.5%, out-of-line,parity", CONDITIONS, METAVAR)
    meant = [("worse", 0.5), ("out-of-line", None), ("parity", None)]
    assert [(condition.name, condition.limit) for condition in conditions] == meant
    for text in ("", "slower", "worse>", "worse>-1%", "worse>nan", "worse>100%"):
        with pytest.raises(ValueError, match=r"choose from|write 'worse>2%'"):
            parse_conditions(text, CONDITIONS, METAVAR)
