"""Why a backend is faster, on the pages: sentences, chart, findings, and a click to measure."""

import json

import pytest

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.index.store import Store
from breakeven.storage.profile.explanation import Explanation, explain
from breakeven.storage.words.profile import AGAIN
from breakeven.views.charts.profile import breakdown, waterfall
from breakeven.views.comparison import why
from breakeven.views.form.presets import changed
from breakeven.views.report.report_files import report
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec
from tests.helpers.pages import opened, opened_run, text

UNPROFILED = "20261122-093015-123456-7f3a"
GEMM = {"name": "nvjet_sm90_tst_1", "op": "aten::mm", "phase": "forward", "dtype": "bf16"}
SLOW = {"name": "sm80_xmma_gemm_f32f32_f32f32_f32_tn", "op": "aten::bmm", "phase": "forward"}


def record(data_dir: DataDir, experiment_id: str = EXPERIMENT_ID, profiles: int = 3) -> None:
    """bf16 on CUDA: from 100 ms with 60 of products to 80 ms with 30 of them in float32."""
    spec = experiment_spec(num_steps=80)
    spec = ExperimentSpec.from_dict(
        json.loads(spec.to_json().replace('"precision": "float32"', '"precision": "bf16"'))
    )
    for label, seconds, kernels in (
        ("baseline", 0.100, [GEMM | {"seconds": 0.060}]),
        ("control", 0.100, [GEMM | {"seconds": 0.060}]),
        ("inductor", 0.080, [GEMM | {"seconds": 0.045}, SLOW | {"seconds": 0.030}]),
    ):
        run = Recording(data_dir.runs, label, spec, experiment_id).claim()
        run.start(environment={"device_type": "cuda"})
        run.blocks([seconds] * 8, [1.0] * 80, 9.0 if label == "inductor" else 0.0)
        for _ in range(profiles):
            run.profile(kernels)
        run.end()


@pytest.mark.heavy
def test_compare_and_a_report_say_why_a_remedy_can_be_measured_and_a_run_has_every_kernel(
    folder: DataDir,
) -> None:
    record(folder)
    app = opened(experiment=EXPERIMENT_ID, tab="Why")
    said = text(app)
    assert "**inductor**: 80.0 ms a step, 20.0 ms less than the baseline." in said
    assert "in float32, without tensor cores, although bf16 was requested" in said
    assert "inductor:math_attention=reduced" in said
    links = [link.proto for link in app.get("page_link")]
    queries = [link.query_string for link in links if link.label == "Measure it"]
    assert any("math_attention" in query for query in queries)
    (frame,) = [
        element.value
        for element in opened_run(part="Profile").dataframe
        if "Name" in element.value.columns
    ]
    assert list(frame["Name"]) == ["nvjet_sm90_tst_1", "sm80_xmma_gemm_f32f32_f32f32_f32_tn"]
    assert "matrix products in float32, no tensor cores" in set(frame["Class"])
    with Store.in_memory(folder) as store:
        page = report(store, [EXPERIMENT_ID])
    assert "<h2>Why</h2>" in page and "in float32, without tensor cores" in page
    record(folder, UNPROFILED, profiles=0)
    assert "No run was profiled" in text(opened(experiment=UNPROFILED, tab="Why"))


def record_profiles(data_dir: DataDir, kernels: dict[str, list[float]]) -> Explanation:
    """Runs of a CPU with steps of 100 ms, profiled with one kernel each of so many seconds; 0.3 is
    longer than any step, and a run without a number has no profile."""
    for label in ("baseline", "control", "inductor"):
        run = Recording(data_dir.runs, label, experiment_spec(num_steps=80)).claim()
        run.start(environment={"device_type": "cpu"}).blocks([0.1] * 8, [1.0] * 80)
        for seconds in kernels.get(label, []):
            run.profile([GEMM | {"seconds": seconds}], seconds=0.1, busy_seconds=seconds)
        run.end()
    with Store.in_memory(data_dir) as store:
        return explain(store, EXPERIMENT_ID)


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        (
            {"baseline": [0.3], "control": [0.06], "inductor": [0.05]},
            ["baseline: the profile is withheld"],
        ),
        pytest.param(
            {"baseline": [0.06], "control": [0.06], "inductor": [0.3]},
            ["inductor: the profile is withheld"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"baseline": [0.06], "inductor": [0.05]},
            ["control has no profile: it was off"],
            marks=pytest.mark.slow,
        ),
        ({"control": [0.06]}, ["baseline has no profile", "inductor has no profile"]),
        (
            {"baseline": [0.3], "control": [0.3], "inductor": [0.3]},
            [
                "baseline: the profile is withheld",
                "control: the profile is withheld",
                "inductor: the profile is withheld",
            ],
        ),
        ({"baseline": [0.06], "control": [0.06], "inductor": [0.05]}, []),
    ],
)
def test_where_a_run_is_missing_in_the_chart_the_reason_stands_above_it(
    data_dir: DataDir, kernels: dict[str, list[float]], said: list[str]
) -> None:
    explained = record_profiles(data_dir, kernels)
    reasons = why.missing(explained)
    assert "".join(reasons).count(AGAIN) == any("withheld" in start for start in said)
    if "".join(said).count("withheld") > 1:
        assert reasons.pop() == AGAIN, "a line for all"
    assert len(reasons) == len(said)
    for reason, start in zip(reasons, said, strict=True):
        assert reason.startswith(start)
    drawn = (
        why.card(explained).figure("All runs").layout.yaxis.tickvals if explained.is_known else ()
    )
    assert not {label for label in drawn if any(start.startswith(label) for start in said)}


@pytest.mark.heavy
def test_why_is_no_empty_heading_where_the_baseline_has_no_profile(folder: DataDir) -> None:
    record_profiles(folder, {"baseline": [0.3], "control": [0.06], "inductor": [0.05]})
    said = text(opened(experiment=EXPERIMENT_ID, tab="Why"))
    assert "- baseline: the profile is withheld, because its parts come to 300 ms" in said
    assert said.count("the profile is withheld") == 1, "it stands in one place"


def test_the_bars_of_a_waterfall_lead_from_step_to_step_and_those_of_runs_are_as_long_as_theirs(
    data_dir: DataDir,
) -> None:
    """100 ms, -15 in bf16, +30 in float32, and idle from 40 to 5: -35. Sum: 80 ms."""
    record(data_dir)
    with Store.in_memory(data_dir) as store:
        explanation = explain(store, EXPERIMENT_ID)
        assert explain(store, EXPERIMENT_ID) is explanation, "drawn again, it is not computed again"
    (bars,) = waterfall(explanation.bridges["inductor"]).data
    assert list(bars.y) == [
        "baseline",
        "device idle",
        "matrix products in bf16",
        "matrix products in float32, no tensor cores",
        "inductor",
    ]
    assert list(bars.x) == pytest.approx([100, -35, -15, 30, 80])
    assert sum(bars.x[:-1]) == pytest.approx(bars.x[-1])
    assert list(bars.measure) == ["absolute", *["relative"] * 3, "total"]
    figure = breakdown(explanation.profiles)
    lengths = {
        label: sum(trace.x[i] for trace in figure.data) for i, label in enumerate(figure.data[0].y)
    }
    assert lengths == pytest.approx({"baseline": 100, "control": 100, "inductor": 80})


def test_a_link_changes_fields_of_the_form_and_nothing_else() -> None:
    spec = experiment_spec()
    changes = {
        "backends": ["inductor", "inductor:math_attention=reduced"],
        "training.batch_size": 16,
    }
    changed_spec = changed(spec, json.dumps(changes))
    assert changed_spec.backends == ("inductor", "inductor:math_attention=reduced")
    assert changed_spec.training.batch_size == 16
    assert changed_spec.training.learning_rate == spec.training.learning_rate


@pytest.mark.parametrize(
    "changes",
    [
        '["x"]',
        "{",
        '{"training.no_such_field": 1}',
        '{"training.batch_size": -1}',
        '{"no.section": 1}',
        '{"name.x": 1}',
        "[" * 100_000,
    ],
)
def test_a_link_that_makes_no_sense_is_refused(changes: str) -> None:
    with pytest.raises((ValueError, InvalidSpec)):
        changed(experiment_spec(), changes)
