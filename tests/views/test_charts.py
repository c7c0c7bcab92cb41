"""Figures show the data they are given, under titles and units of the registry of metrics."""

import math
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage import queries
from breakeven.storage.commands import EXAMPLES
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.plan import Plan
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import DASH
from breakeven.storage.statistics.parity import Parity, unknown_parity
from breakeven.storage.statistics.speedups import Ratio
from breakeven.storage.words.parity import parity_text
from breakeven.views.charts import bars, speed
from breakeven.views.charts import compiling as compiling_charts
from breakeven.views.charts import losses as loss_charts
from breakeven.views.charts import over_steps as step_charts
from breakeven.views.charts import scores as score_charts
from breakeven.views.charts.palette import KNOWN, run_looks
from breakeven.views.comparison import headline, leaderboard
from breakeven.views.comparison.cards import all_cards
from breakeven.views.comparison.statistics_table import statistics_table
from breakeven.views.shared.definition_links import axis, linked
from tests.helpers.comparisons import comparison, pays, result, series
from tests.helpers.journals import EXPERIMENT_ID, Recording

RACED = sorted({path.parent for path in EXAMPLES.glob("*/*.baseline")})
FASTER = Ratio(median=2.0, low=1.9, high=2.1, p_value=0.01, n=9)


def trace(figure, name: str):
    return next(entry for entry in figure.data if entry.name == name)


def drawn(trace) -> tuple[list, list]:
    return list(trace.x), list(trace.y)


def losses(**runs: list[float]):
    return loss_charts.losses(series("loss", **runs))


def test_losses_are_one_line_per_run_in_its_dashes_with_the_loss_of_each_step():
    figure = losses(baseline=[2.0, 1.5], control=[2.0, 1.4], inductor=[2.0, 1.6])
    assert [entry.name for entry in figure.data] == ["baseline", "control", "inductor"]
    assert list(trace(figure, "inductor").y) == [2.0, 1.6]
    assert trace(figure, "baseline").line.dash == "solid"
    assert trace(figure, "control").line.dash == KNOWN["control"].dash
    assert figure.layout.yaxis.title.text == axis("loss")
    assert figure.layout.xaxis.title.text == axis("step")
    assert figure.layout.xaxis.dtick == 1, "few steps have a mark each, and no halves between"
    assert losses(baseline=[2.0] * 300).layout.xaxis.dtick is None


def test_the_controls_band_lies_beneath_the_lines_and_keeps_its_outermost_points():
    steps = range(10_000)
    low = [-5.0 if step == 4321 else 0.1 * (step % 7) for step in steps]
    high = [9.0 if step == 8765 else 1.0 + 0.1 * (step % 7) for step in steps]
    band = pd.DataFrame({"step": steps, "baseline": 0.5, "low": low, "high": high})
    frame = series("loss", baseline=[2.0, 1.5])
    lower, upper, line = loss_charts.losses(frame, band[:2]).data
    assert (list(lower.y), list(upper.y)) == ([0.0, 0.1], [1.0, 1.1])
    assert (upper.fill, line.name) == ("tonexty", "baseline")
    lower, upper, *_ = loss_charts.losses(frame, band).data
    assert 500 <= len(lower.x) <= 2 * loss_charts.MAX_POINTS
    assert list(lower.x) == list(upper.x)
    assert lower.y[list(lower.x).index(4321)] == min(lower.y) == -5.0
    assert upper.y[list(upper.x).index(8765)] == max(upper.y) == 9.0


def test_a_long_training_shows_its_moving_average_over_the_steps_themselves():
    # 300 steps alternating between 0 and 2: a window of 300 // 50 = 6 steps averages to 1.
    frame = series("loss", baseline=[0.0, 2.0] * 150)
    frame["cumulative_seconds"] = [5.0 + 0.5 * step for step in range(300)]
    faint, average = loss_charts.losses(frame).data
    assert (faint.opacity, len(faint.y)) == (0.25, 300)
    assert list(average.y[10:290]) == pytest.approx([1.0] * 280)
    figure = loss_charts.losses(frame, over="cumulative_seconds")
    faint, average = figure.data
    assert (faint.x[0], average.x[0], average.x[-1]) == (5.0, 5.0, pytest.approx(154.5))
    assert "Training time (s)" in figure.layout.xaxis.title.text
    run = series("loss", baseline=[1.0, math.inf, 3.0])
    assert list(loss_charts.moving_average(run, 3)["loss"]) == [1.0, 2.0, 3.0]


def test_differences_are_distances_to_the_baseline_at_the_same_step():
    frame = series("loss", baseline=[2.0, 1.5, 1.0], inductor=[2.0, 1.25, 1.5])
    figure = loss_charts.loss_differences(frame)
    # |2 - 2| = 0 has no place on a log scale; |1.25 - 1.5| = 0.25; |1.5 - 1| = 0.5
    assert drawn(trace(figure, "inductor")) == ([1, 2], [0.25, 0.5])
    assert figure.layout.yaxis.type == "log"


def test_a_run_that_diverges_does_not_flatten_the_others_and_has_no_differences():
    # The baseline spans 1 to 2; one more span and a margin of 5 % are shown: up to 3.05.
    figure = losses(baseline=[2.0, 1.0], inductor=[2.0, 1e6])
    assert figure.layout.yaxis.range == (pytest.approx(0.95), pytest.approx(3.05))
    frame = series("loss", baseline=[2.0, 1.5], inductor=[math.inf, math.nan])
    assert len(trace(loss_charts.loss_differences(frame), "inductor").y) == 0


def test_steps_that_compiled_stand_out_in_the_times_of_runs():
    frame = series("seconds", baseline=[0.1, 0.1], inductor=[9.0, 0.1])
    figure = step_charts.step_series(frame.assign(compiled=[False, False, True, False]))
    # The median step takes 0.1 s, so the axis counts milliseconds.
    assert drawn(trace(figure, "compiled during this step")) == ([0], pytest.approx([9000]))
    assert figure.layout.yaxis.title.text == axis("step_seconds", "Step time (ms)")
    lines = {trace.name: list(trace.y) for trace in figure.data if trace.mode == "lines"}
    assert lines == {"baseline": pytest.approx([100, 100]), "inductor": pytest.approx([9000, 100])}


def test_the_compilers_work_is_marked_at_its_steps_in_the_colours_of_runs_and_leaves_the_range():
    labels = {f"mine-{number}": [2.0, 1.5, 1.0] for number in range(9)}
    figure = losses(eager=[2.0, 1.5, 1.0], inductor=[2.0, 1.5, 1.0], **labels)
    span = figure.layout.yaxis.range
    rows = [
        ("inductor", 0, "training", "compiled", 3, "forward"),
        ("mine-8", 2, "training", "recompiled", 1, "0/0: expected <2>, actual 3"),
        ("eager", 2, "evaluating", "graph break", 2, None),
    ]
    events = pd.DataFrame(rows, columns=["label", "step", "phase", "kind", "count", "detail"])
    assert "yaxis2" not in step_charts.mark_compiler_events(figure, events[:0]).layout
    step_charts.mark_compiler_events(figure, events)
    marks = [trace(figure, kind) for kind in events["kind"]]
    assert [list(mark.x) for mark in marks] == [[0], [2], [2]]
    assert marks[0].text[0] == "inductor, 3 x compiled: forward"
    assert marks[1].text[0].endswith("expected <2>, actual 3")
    assert marks[2].text[0] == "eager, 2 x graph break while evaluating"
    colours = [trace(figure, label).line.color for label in events["label"]]
    assert [mark.marker.color[0] for mark in marks] == colours
    assert {mark.yaxis for mark in marks} == {"y2"}
    assert figure.layout.yaxis.range == span and figure.layout.yaxis2.range == (0, 1)


def test_of_a_million_steps_a_screens_worth_of_extremes_is_drawn():
    seconds = pd.Series(0.1, index=range(1_000_000))
    seconds[123_456], seconds[777_777] = 5.0, 0.01
    frame = pd.DataFrame(
        {
            "label": "eager",
            "role": "backend",
            "step": seconds.index,
            "seconds": seconds,
            "compiled": False,
            "name": "a",
            "value": seconds.where(seconds != 5.0, math.nan),
        }
    )
    line = trace(step_charts.step_series(frame), "eager")
    assert len(line.x) <= 1000
    assert dict(zip(line.x, line.y, strict=True)).items() >= {123_456: 5e3, 777_777: 10.0}.items()
    own = step_charts.named_series(frame, "a").data[0]
    assert len(own.x) <= 1000 and 777_777 in own.x


def line_of(figure, label: str, measured: bool = False):
    """The line of a run, or of its measurements."""
    return next(
        entry
        for entry in figure.data
        if entry.legendgroup == label
        and (entry.line.dash == speed.MEASURED["dash"]) == measured
        and entry.mode == "lines"
    )


BASELINE = result("baseline", step_seconds=2.0)


def paying(steps: float) -> list:
    """Steps of 2 s, and of 1 s under a compiler that so many steps repay."""
    return [
        BASELINE,
        result(
            "inductor", step_seconds=1.0, speed_verdict="faster", break_even=pays("reached", steps)
        ),
    ]


def test_lines_reach_beyond_the_measured_steps_to_the_last_crossing():
    # The baseline takes 2 s a step; inductor 1 s, after 6 s of compiling in its first step.
    frame, results = series("seconds", baseline=[2.0, 4.0], inductor=[7.0, 8.0]), paying(6.0)
    figure = speed.cumulative(frame, results)
    # 6 + n = 2 n at n = 6: both have then taken 12 s.
    assert drawn(trace(figure, "inductor pays off")) == ([6.0], [12.0])
    # Up to 1.15 x 6 = 6.9 steps: baseline 6.9 x 2 = 13.8 s, inductor 6 + 6.9 = 12.9 s.
    lines = [line_of(figure, label) for label in ("baseline", "inductor")]
    assert [(line.x[0], line.x[-1]) for line in lines] == [(0.0, pytest.approx(6.9))] * 2
    assert [line.y[-1] for line in lines] == [pytest.approx(13.8), pytest.approx(12.9)]
    assert figure.layout.yaxis.title.text == axis("cumulative_seconds")
    figure = speed.saved(frame, results)
    assert list(line_of(figure, "inductor", measured=True).y) == [-5.0, -4.0]
    assert list(trace(figure, "inductor pays off").y) == [0.0]
    # It gains 1 s a step: after 6.9 steps -6 + 6.9 = 0.9 s.
    line = line_of(figure, "inductor")
    assert (line.y[0], line.y[-1]) == (-6.0, pytest.approx(0.9))


def test_of_rings_side_by_side_the_first_has_a_name_and_tells_how_many_follow():
    """In a plan of 100 steps: within 10 % of the width on a rising line, 25 % on a level one."""
    after = {"a": 11.0, "b": 10.0, "c": 25.0, "d": 60.0}
    frame = series("seconds", baseline=[2.0], **{label: [7.0] for label in after})
    results = [
        BASELINE,
        *(
            result(label, step_seconds=1.0, break_even=pays("reached", steps))
            for label, steps in after.items()
        ),
    ]
    for draw, texts in (
        (speed.cumulative, {"a": "", "b": "b and 1 more", "c": "c", "d": "d"}),
        (speed.saved, {"a": "", "b": "b and 2 more", "c": "", "d": "d"}),
    ):
        figure = draw(frame, results, 100)
        assert {label: trace(figure, f"{label} pays off").text[0] for label in after} == texts


def test_what_was_measured_is_told_apart_from_what_is_estimated():
    times = {"baseline": [2.0, 4.0, 6.0, 8.0], "inductor": [3.5, 4.0, 5.0, 6.5]}
    figure = speed.cumulative(series("seconds", **times), paying(2.0))
    assert times == {label: list(line_of(figure, label, measured=True).y) for label in times}
    assert list(trace(figure, "inductor pays off").y) == [4.0]
    assert line_of(figure, "inductor").x[-1] == 4.0, "the crossing lies within"


def test_lines_reach_as_far_as_the_plan_and_what_is_unsure_has_no_ring_and_draws_none_longer():
    frame = series("seconds", baseline=[2.0] * 20, eager=[5.0] * 20)
    results = [BASELINE, result("eager", step_seconds=1.0, break_even=pays("unsure", 10.0))]
    for draw, last in ((speed.cumulative, 200.0), (speed.saved, 0.0)):
        line = line_of(draw(frame, results, 100), "baseline")
        assert (line.x[-1], line.y[-1]) == (100.0, pytest.approx(last))
        figure = draw(frame, results)
        assert not [entry for entry in figure.data if "pays off" in (entry.name or "")]
        assert line_of(figure, "eager").x[-1] == 20.0


def test_bars_on_the_axis_of_time_lie_from_start_to_end_in_the_row_of_their_run():
    frame = pd.DataFrame(
        [
            ("baseline", "loading", 0.0, 2.0),
            ("inductor", "steps", 2.5, 9.0),
            ("inductor", "compiling", 3.0, 8.0),
        ],
        columns=["label", "kind", "start", "end"],
    )
    figure = step_charts.activities(frame)
    periods = [bars for bars in figure.data if bars.base is not None]
    bars_of = {bars.name: (list(bars.y), list(bars.base), list(bars.x)) for bars in periods}
    assert bars_of == {
        "training steps": (["inductor"], [2.5], [6.5]),
        "loading": (["baseline"], [0.0], [2.0]),
        "compiling": (["inductor"], [3.0], [5.0]),
    }
    assert list(bars_of)[-1] == "compiling", "it is drawn over the turn that it lies in"
    # Colours mean runs; patterns mean activities, which the legend shows in no run's colour.
    looks = run_looks(["baseline", "inductor"])
    assert [list(bars.marker.color) for bars in periods] == [
        [looks[label].color] for label in ("inductor", "baseline", "inductor")
    ]
    legend = {bars.name: bars.marker for bars in figure.data if bars.showlegend}
    assert [marker.pattern.shape for marker in legend.values()] == ["", ".", "/"]
    assert list(legend) == list(bars_of)
    assert [bars.marker.pattern.shape for bars in periods] == ["", ".", "/"]


def test_the_legend_says_when_each_backend_pays_off_and_never_where_it_does_not():
    backends = {
        "inductor": (1.0, pays("reached", 1234.0), "after 1,234 steps"),
        "eager": (2.5, pays("never"), "never"),
        "aot_eager": (1.9, pays("reached", 500.0, high=math.inf), "after 500 steps, perhaps never"),
        "mine": (1.9, pays("unsure", 700.0), "inconclusive"),
    }
    results = [
        result(label, step_seconds=seconds, break_even=break_even)
        for label, (seconds, break_even, _) in backends.items()
    ]
    frame = series("seconds", baseline=[2.0], **{label: [7.0] for label in backends})
    figure = speed.cumulative(frame, [BASELINE, *results])
    assert [entry.name for entry in figure.data if entry.showlegend is not False] == [
        "baseline",
        *(f"{label}: {said}" for label, (*_, said) in backends.items()),
    ]


def test_the_line_of_what_compiled_nothing_follows_its_speedup():
    """A control with faster steps than the baseline, which the rounds call slower nevertheless."""
    slower = Ratio(median=0.8, low=0.7, high=0.9, p_value=0.01, n=9)
    frame = series("seconds", baseline=[2.0] * 10, control=[1.9] * 10)
    figure = speed.saved(frame, [BASELINE, result("control", step_seconds=1.9, speedup=slower)])
    assert line_of(figure, "control").y[-1] == pytest.approx(10 * (2.0 - 2.0 / 0.8))


@pytest.mark.parametrize(("other_size", "is_there"), [(54, True), (56, False)])
def test_losses_are_drawn_over_samples_only_if_steps_of_all_runs_are_of_one_size(
    data_dir: DataDir, other_size: int, is_there: bool
):
    for label, size in (("baseline", 54), ("inductor", other_size)):
        run = Recording(data_dir.runs, label).claim().start(samples_per_step=size)
        run.blocks([0.1] * 4, [2.0] * 40).end()
    with Store.in_memory(data_dir) as store:
        cards = all_cards(store, compare(store, EXPERIMENT_ID))
    (card,) = (card for card in cards if card.title == "Training loss")
    assert ("By samples" in card.figures) is is_there and "By time" in card.figures


@pytest.mark.parametrize("evaluates", [True, False])
def test_scores_are_drawn_only_if_runs_were_evaluated(data_dir: DataDir, evaluates: bool):
    run = Recording(data_dir.runs, "baseline").claim().start()
    run.blocks([0.1] * 4, [2.0] * 40)
    if evaluates:
        run.evaluation(0.8)
    run.end()
    with Store.in_memory(data_dir) as store:
        titles = {card.title for card in all_cards(store, compare(store, EXPERIMENT_ID))}
    assert "Training loss" in titles
    assert titles & {"Accuracy", "Evaluation loss"} == (
        {"Accuracy", "Evaluation loss"} if evaluates else set()
    )


@pytest.mark.parametrize("example", RACED, ids=lambda path: path.name)
def test_drawn_lines_of_recorded_examples_cross_where_their_break_even_is(
    example: Path, examples: Store
):
    """Reads values from the lines as a reader does, and compares them with the numbers of the
    table."""
    (experiment_id,) = {path.name.partition(".")[0] for path in example.iterdir()}
    results = compare(examples, experiment_id).results
    times = queries.cumulative_times(examples, experiment_id)
    far = speed.MAX_EXTRAPOLATION * (times["step"].max() + 1)
    reached = {
        result.label: result.break_even.steps
        for result in results
        if result.role == "backend"
        and result.break_even_verdict == "reached"
        and result.break_even.steps < far
    }
    saved, spent = speed.saved(times, results), speed.cumulative(times, results)
    rings = {
        entry.legendgroup: entry.x[0]
        for figure in (saved, spent)
        for entry in figure.data
        if (entry.name or "").endswith("pays off")
    }
    assert rings == reached
    for label in rings:
        line = line_of(saved, label)
        assert np.interp(0.0, line.y, line.x) == pytest.approx(reached[label], abs=1.0)
        own, base = line_of(spent, label), line_of(spent, "baseline")
        apart = np.asarray(base.y) - np.asarray(own.y)
        assert np.interp(0.0, apart, own.x) == pytest.approx(reached[label], abs=1.0)


def test_a_box_shows_median_quartiles_and_the_5_and_95_percent_quantiles_in_a_fitting_unit():
    figure = bars.step_times(series("seconds", baseline=[float(value) for value in range(101)]))
    box, _said = figure.data
    shown = (box.lowerfence[0], box.q1[0], box.median[0], box.q3[0], box.upperfence[0])
    assert shown == (5.0, 25.0, 50.0, 75.0, 95.0)
    assert figure.layout.xaxis.title.text == axis("step_seconds")
    short = bars.step_times(series("seconds", baseline=[0.25, 0.5, 0.75]))
    assert short.data[0].median[0] == 500.0
    assert short.layout.xaxis.title.text == axis("step_seconds", "Step time (ms)")


def test_bars_carry_their_value_as_the_registry_writes_it_and_a_dash_if_undefined():
    results = [result("baseline"), result("inductor", compile_seconds=12.5, metrics={"f1": 0.5})]
    figure = bars.metric(results, "compile_seconds")
    bar, text = figure.data
    assert (list(bar.x), list(text.text)) == ([0.0, 12.5], [DASH, "12.5 s"])
    assert figure.layout.xaxis.title.text == axis("compile_seconds")
    bar, text = score_charts.last_scores(results, "f1").data
    assert (list(bar.x), list(text.text)) == ([0.0, 0.5], [DASH, "50.0 %"])


def test_memory_tells_what_is_needed_from_what_was_allocated_between_round_binary_ticks():
    results = [
        result("baseline", peak_memory_bytes=2**30),
        result(
            "inductor",
            peak_memory_bytes=2**30,
            compile_peak_memory_bytes=5 * 2**30,
            allocated_memory_bytes=2**29,
        ),
    ]
    figure = bars.peak_memory(results)
    _bar, text, compiling, allocated = figure.data
    assert list(figure.layout.xaxis.ticktext) == ["0 MiB", "2 GiB", "4 GiB"]
    assert list(text.text) == ["1.00 GiB", "1.00 GiB, \N{WHITE DIAMOND} 5.00 GiB, | 512.0 MiB"]
    assert list(text.x) == [2**30, 5 * 2**30], "the text stands beyond the last mark"
    # 32 characters of 4.6 pixels and the gap: 163 of the 430 that the label leaves.
    assert 1 - 5 * 2**30 / figure.layout.xaxis.range[1] >= 0.37, "and fits beside it"
    assert drawn(compiling) == ([5 * 2**30], ["inductor"])
    assert drawn(allocated) == ([2**29], ["inductor"])
    explained = {trace.name: trace.marker.symbol for trace in figure.data if trace.showlegend}
    assert explained == {"Memory needed to compile": "diamond-open", "Allocated memory": "line-ns"}
    assert figure.layout.showlegend
    plain = bars.peak_memory(results[:1])
    assert not [trace for trace in plain.data if trace.showlegend], "nothing to explain"


def test_a_score_stands_at_its_epochs_and_several_of_one_epoch_at_their_steps():
    frame = pd.DataFrame(
        {
            "label": ["baseline"] * 2,
            "role": ["baseline"] * 2,
            "epoch": [1, 2],
            "step": [50, 100],
            "value": [0.5, 0.75],
        }
    )
    figure = score_charts.scores_of_runs(frame, "accuracy", majority_share=0.2)
    assert drawn(figure.data[0]) == ([1, 2], [0.5, 0.75])
    assert figure.layout.shapes[0].y0 == 0.2
    assert figure.layout.yaxis.tickformat.endswith("%")
    figure = score_charts.scores_of_runs(frame.assign(epoch=0), "loss")
    assert drawn(figure.data[0]) == ([50, 100], [0.5, 0.75])
    assert figure.layout.xaxis.title.text == axis("step")
    assert figure.layout.yaxis.title.text == axis("eval_loss")


def test_scores_of_a_run_have_a_line_for_each_split_and_dashes_for_the_compiled_model():
    frame = pd.DataFrame(
        [
            (20, "validation", False, 0.5),
            (20, "validation", True, 0.4),
            (20, "test", False, 0.6),
            (20, "test", True, 0.7),
            (40, "validation", False, 0.8),
        ],
        columns=["step", "split", "compiled", "value"],
    )
    plain, compiled, test, test_compiled = score_charts.scores(frame, "f1").data
    assert (plain.name, drawn(plain)) == ("validation", ([20, 40], [0.5, 0.8]))
    assert (compiled.line.dash, list(compiled.y)) == ("dash", [0.4])
    assert compiled.line.color == plain.line.color != test.line.color
    assert compiled.name == "under the compiled model"
    assert test_compiled.showlegend is False, "said once"


def test_a_confusion_matrix_counts_samples_and_colours_shares_of_each_label():
    counts = pd.DataFrame([[3, 1], [0, 2]], index=["low", "high"], columns=["low", "high"])
    cells, written = score_charts.confusion(counts).data
    assert drawn(cells) == (["low", "high"], ["low", "high"])
    assert cells.text.tolist() == [[3, 1], [0, 2]]
    assert cells.z.tolist() == [[0.75, 0.25], [0.0, 1.0]]
    assert list(written.text) == ["3", "1", "0", "2"]


def test_numbers_by_name_are_lines_with_gaps_and_a_single_one_needs_no_legend():
    frame = pd.DataFrame(
        {"step": [0, 1, 0, 1], "name": ["a", "a", "b", "b"], "value": [1.0, math.inf, 3.0, 4.0]}
    )
    figure = step_charts.named_series(frame, "Loss")
    assert [entry.name for entry in figure.data] == ["a", "b"]
    assert math.isnan(figure.data[0].y[1])
    alone = step_charts.named_series(frame[frame["name"] == "b"], "b")
    assert alone.layout.showlegend is False
    assert alone.layout.height < figure.layout.height
    line = step_charts.setting(series("gradient_norm", inductor=[2.5, math.inf]), "gradient_norm")
    assert line.data[0].y[0] == 2.5 and math.isnan(line.data[0].y[1])
    assert line.data[0].connectgaps is not True, "a gap where it is not finite"


def test_gradients_are_coloured_by_their_power_of_ten_and_zeros_by_their_share():
    frame = pd.DataFrame(
        {
            "step": [0, 5, 0, 5],
            "name": ["in", "in", "out", "out"],
            "norm": [100.0, 0.01, 0.0, 1.0],
            "zeros": [0.0, 0.5, 1.0, 0.0],
        }
    )
    (cells,) = step_charts.gradient_norms(frame, "norm").data
    assert drawn(cells) == ([0, 5], ["in", "out"])
    assert cells.z[0].tolist() == [2.0, -2.0]
    assert math.isnan(cells.z[1][0]), "a gradient of 0 has no power of ten"
    assert list(cells.colorbar.ticktext) == [f"10<sup>{power}</sup>" for power in range(-2, 3)]
    (dead,) = step_charts.gradient_norms(frame[2:3], "norm").data
    assert math.isnan(dead.z[0][0])
    (shares,) = step_charts.gradient_norms(frame, "zeros").data
    assert shares.z.tolist() == [[0.0, 0.5], [1.0, 0.0]]


def test_a_resumption_is_a_line_before_its_first_step_that_says_which_runs():
    resumed = pd.DataFrame(
        {"label": ["inductor", "eager", "a", "b", "c", "d"], "step": [40, 40, 80, 80, 80, 900]}
    )
    resumed["only_times"] = resumed["label"] == "d"
    figure = step_charts.mark_resumptions(losses(inductor=[1.0] * 90), resumed)
    # 40 steps were done, 0 to 39: the line lies between 39 and 40.
    assert [shape.x0 for shape in figure.layout.shapes] == [39.5, 79.5]
    said = [note.text for note in figure.layout.annotations]
    assert said == ["inductor, eager resumed", "3 runs resumed"]
    unnamed = step_charts.mark_resumptions(losses(a=[1.0] * 90), resumed[:1], named=False)
    assert [note.text for note in unnamed.layout.annotations] == ["resumed"]


def test_long_labels_are_written_in_two_lines_and_many_runs_get_a_higher_chart():
    """If a line has no room beside the bars, its middle is left out, because backends differ at the
    end."""
    written = {
        "baseline": "baseline",
        "inductor-reduce-overhead": "inductor-<br>reduce-overhead",
        "inductor-math_attention_reduced-triton.cudagraphs_true-fallback_random_false": (
            "inductor-<br>math_attentio…_random_false"
        ),
        "a_backend_of_somebodys_own_with_a_long_name": "a_backend_of_…h_a_long_name",
        "eager": "eager",
    }
    figure = bars.metric(
        [result(label, compile_seconds=1.0) for label in written], "compile_seconds"
    )
    assert list(figure.layout.yaxis.ticktext) == list(written.values())
    few, many = (losses(**{label: [2.0, 1.0] for label in [*written][:n]}) for n in (4, 5))
    assert (few.layout.height, many.layout.height) == (310, 326)  # 16 for each run beyond four


def test_a_column_without_any_value_is_left_out_once_all_runs_are_over():
    over = [result("baseline", step_seconds=0.2), result("inductor", step_seconds=0.1)]
    running = [over[0], result("inductor", step_seconds=0.1, state="running")]
    shown, meanwhile = leaderboard.html(over), leaderboard.html(running)
    assert "Step" in shown and "Energy" not in shown + meanwhile
    for title in ("Accuracy", "Parity", "Compile", "Speed"):
        assert f">{title}" not in shown and f">{title}" in meanwhile
    known = leaderboard.html([result("baseline", energy_per_step=42.4), result("inductor")])
    assert "Energy per step" in known and "<td>42.4 J</td>" in known


def test_parity_is_among_the_first_columns_which_the_fixed_one_does_not_cover():
    holds = Parity(
        verdict="holds",
        first_step_outside=None,
        max_ratio_to_band=None,
        steps_compared=900,
        findings=(),
        last_step_in_band=240,
    )
    table = leaderboard.html([result("inductor", step_seconds=0.1, speedup=FASTER, parity=holds)])
    assert table.index(">Speedup<") < table.index(">Parity<") < table.index(">Step time<")
    assert ">matches <small>(checked to step 240)</small></span>" in table, "in two lines"
    mark = unquote(leaderboard.run_mark("mine", KNOWN["eager"]))
    assert "stroke='#1f7a5c'" in mark and "stroke-dasharray='6,3'" in mark


def test_a_break_even_that_may_be_chance_reads_inconclusive_and_tells_its_steps_on_hover():
    ratio = Ratio(median=1.02, low=0.99, high=1.05, p_value=0.2, n=9)
    eager = result("eager", speedup=ratio, speed_verdict="unsure", break_even=pays("unsure", 700.0))
    reason = (
        "The speedup of 1.02x (0.99 to 1.05) may be chance. If it is real, compiling pays "
        "off after 700 steps."
    )
    table = leaderboard.html([result("baseline"), eager])
    assert table.endswith(f'title="{reason}">inconclusive</span></td></tr></tbody></table></div>')


@pytest.mark.parametrize(
    ("verdict", "outside", "in_band", "said"),
    [
        ("broken", 1200, None, "broken at step 1,200"),
        ("holds", None, 1240, "matches (checked to step 1,240)"),
        ("broken", None, 1240, "broken"),
        ("nothing learned", None, 1240, "nothing learned"),
        ("holds", None, 1989, "matches"),  # of 2,000 steps; the last ten never have a band
    ],
)
def test_parity_says_how_far_losses_could_tell(
    verdict: str, outside: int | None, in_band: int | None, said: str
):
    parity = Parity(
        verdict=verdict,
        first_step_outside=outside,
        max_ratio_to_band=None,
        steps_compared=2000,
        findings=(),
        last_step_in_band=in_band,
    )
    assert parity_text(parity) == said


def test_behind_the_verdicts_stands_how_sure_they_are_and_nothing_that_no_run_has():
    ratio = Ratio(median=1.5, low=1.4, high=1.6, p_value=0.01, n=9, effect_size=0.8)
    inductor = result("inductor", speedup=ratio, p_holm=0.02, training_loss_excess=0.2)
    results = [result("baseline"), result("control", speedup=ratio), inductor, result("eager")]
    assert statistics_table(comparison(*results)).to_dict("list") == {
        "run": ["control", "inductor"],
        "p_holm": [DASH, "0.020"],
        "effect_size": ["0.80", "0.80"],
        # exp(2.802 x ln(1.6 / 1.4) / 3.920) - 1
        "detectable_effect": ["10.0 %", "10.0 %"],
        "training_loss_excess": [DASH, "0.2000"],
        "training_loss_check": [DASH, "fails"],
    }


def test_a_reason_that_several_runs_share_is_said_once():
    results = [
        result(label, parity=unknown_parity("no control")) for label in ("eager", "inductor")
    ]
    no_answer = Plan(num_steps=None, answer=None, totals={}, best=None, baseline="baseline")
    assert headline.parity_reasons(results, no_answer) == [
        f"**eager, inductor**, {linked('parity', 'parity')}: without a control "
        "it is not known how far rounding alone drives losses apart."
    ]


def test_phases_of_compiling_are_stacked_cold_and_warm():
    rows = [
        ("inductor", cache, phase, seconds)
        for cache, seconds in (("cold", 4.0), ("warm", 1.0))
        for phase in ("Dynamo", "Triton and C++")
    ]
    frame = pd.DataFrame(rows, columns=["backend", "cache", "phase", "seconds"])
    figure = compiling_charts.phases(frame)
    assert figure.layout.barmode == "stack"
    assert list(trace(figure, "Dynamo").y) == ["inductor, cold", "inductor, warm"]
    assert list(trace(figure, "Triton and C++").x) == [4.0, 1.0]
    assert figure.layout.xaxis.title.text == axis("compile_phases")
