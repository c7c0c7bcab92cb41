"""Every run can be told from every other, on both backgrounds, by people with any colour vision."""

import io
import tomllib
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from PIL import Image
from playwright.sync_api import Browser
from plotly.colors import sample_colorscale, unlabel_rgb

from breakeven.runner.protocol.states import RunState
from breakeven.storage.compiling.timeline import PHASES, STAGES
from breakeven.storage.profile.kernel_classes import CLASSES
from breakeven.storage.profile.recorded_profiles import Profile
from breakeven.storage.queries.time_use import ELAPSED
from breakeven.views.charts import across_experiments as suite_charts
from breakeven.views.charts import losses as loss_charts
from breakeven.views.charts import profile as profile_charts
from breakeven.views.charts import scores as score_charts
from breakeven.views.charts import speed as speed_charts
from breakeven.views.charts.layout import write_cells
from breakeven.views.charts.palette import (
    ACTIVITY_SHAPES,
    BAD,
    CLASS_FILLS,
    FALLBACK_LOOKS,
    GOOD,
    KNOWN,
    NON_RUN_COLORS,
    PHASE_DEPTHS,
    SPLITS,
    STAGE_FILLS,
    run_looks,
    text_on,
)
from tests.helpers.colour_vision import VISIONS, contrast, difference, linear, seen_difference

CONFIG = tomllib.loads((Path(__file__).parents[2] / ".streamlit" / "config.toml").read_text())
BACKGROUNDS = [CONFIG["theme"][theme]["backgroundColor"] for theme in ("light", "dark")]
USUAL = ("baseline", "eager", "aot_eager", "inductor", "cudagraphs")
"""What nearly every experiment compares; their colours alone distinguish them."""
CLEAR = 12.0
"""CIEDE2000 of colours that people distinguish at a glance, also as thin lines; 2 is just
noticeable."""


def test_the_simulation_leaves_greys_alone_and_confuses_what_those_people_confuse():
    # From the test data that Sharma, Wu and Dalal publish with the formula.
    seen = difference(np.array((50, 2.5, 0)), np.array((73, 25, -18)))
    assert seen == pytest.approx(27.1492, abs=1e-4)
    for vision, matrix in VISIONS.items():
        assert matrix @ linear("#808080") == pytest.approx(linear("#808080"), abs=1e-5), vision
    # Former colours of inductor and aot_eager; few people with deuteranopia distinguish them.
    assert seen_difference("#2f7fe0", "#9b5de5", "usual") > CLEAR
    for vision in ("deuteranopia", "protanopia"):
        assert seen_difference("#2f7fe0", "#9b5de5", vision) < 5


@pytest.mark.parametrize("vision", VISIONS)
def test_usual_backends_are_told_apart_by_their_colours_alone(vision: str):
    for first, second in combinations(USUAL, 2):
        seen = seen_difference(KNOWN[first].color, KNOWN[second].color, vision)
        assert seen >= CLEAR, (first, second)


@pytest.mark.parametrize("vision", VISIONS)
def test_whoever_looks_alike_in_colour_differs_in_dash_and_marker(vision: str):
    looks = {**KNOWN, **{f"other {number}": look for number, look in enumerate(FALLBACK_LOOKS)}}
    alike = [
        (first, second)
        for first, second in combinations(looks, 2)
        if seen_difference(looks[first].color, looks[second].color, vision) < CLEAR
        and (looks[first].dash == looks[second].dash or looks[first].symbol == looks[second].symbol)
    ]
    # No other label has the dash and marker of an unknown label; two unknown labels may share them,
    # but rarely look alike: `run_looks` separates labels that share all three.
    assert not [pair for pair in alike if not all(name.startswith("other") for name in pair)]
    assert len(set(FALLBACK_LOOKS)) == len(FALLBACK_LOOKS)


def test_colours_stand_out_from_every_background():
    for color in {
        *NON_RUN_COLORS,
        GOOD,
        BAD,
        *(look.color for look in (*KNOWN.values(), *FALLBACK_LOOKS)),
    }:
        for background in BACKGROUNDS:
            assert contrast(color, background) >= 3, (color, background)


def test_what_is_no_run_has_a_colour_that_no_run_has():
    of_runs = {look.color for look in (*KNOWN.values(), *FALLBACK_LOOKS)}
    for color in NON_RUN_COLORS:
        assert min(seen_difference(color, run, "usual") for run in of_runs) > 6, color
    for color, other in combinations(NON_RUN_COLORS, 2):
        assert seen_difference(color, other, "usual") > CLEAR, (color, other)
    sides = {look.color for look in speed_charts.LOOKS.values()}
    filled = {fill.color for fill in (*CLASS_FILLS.values(), *STAGE_FILLS.values())}
    splits = {look.color for look in SPLITS.values()}
    assert sides | splits | (filled - {KNOWN["baseline"].color}) <= set(NON_RUN_COLORS)


def test_every_class_of_kernels_stage_and_activity_has_a_look_of_its_own_which_never_changes():
    assert set(CLASS_FILLS) == set(CLASSES)
    assert set(STAGE_FILLS) == set(STAGES.values())
    assert list(PHASE_DEPTHS) == list(PHASES)
    assert set(ACTIVITY_SHAPES) == set(ELAPSED) - {"waiting", "earlier"}
    for looks in (CLASS_FILLS, STAGE_FILLS, PHASE_DEPTHS, ACTIVITY_SHAPES):
        assert len(set(looks.values())) == len(looks)


def profiled(**seconds: float) -> Profile:
    """The profile of a run whose kernels are of these classes."""
    kernels = pd.DataFrame({"work_class": list(seconds), "seconds": list(seconds.values())})
    return Profile(
        label="inductor",
        step_seconds=kernels["seconds"].sum(),
        kernels=kernels,
        state=RunState.FINISHED,
        works_by_itself=True,
        turns=pd.DataFrame(),
        cost_seconds=0.0,
    )


def test_a_class_of_kernels_has_the_same_look_whatever_else_an_experiment_spends_its_time_on():
    little = profile_charts.breakdown([profiled(matmul_bf16=1.0, copies=2.0)]).data
    much = profile_charts.breakdown(
        [profiled(attention_flash=1.0, fused=1.0, matmul_bf16=3.0, matmul_float32=1.0, copies=1.0)]
    ).data
    looks = {bars.name: (bars.marker.color, bars.marker.pattern.shape) for bars in much}
    assert {bars.name: (bars.marker.color, bars.marker.pattern.shape) for bars in little} == {
        name: looks[name] for name in ("matrix products in bf16", "casts and copies")
    }
    assert len(set(looks.values())) == len(looks) == 5


@pytest.mark.parametrize("quantity", ["speedup", "parity", "compile_seconds"])
def test_every_cell_of_a_matrix_can_be_read(quantity: str):
    low, high, scale = suite_charts._scale(quantity, [[0.0, 1.0]])
    shares = np.linspace(0, 1, 201)
    figure = go.Figure(
        go.Heatmap(
            x=list(range(201)),
            y=["row"],
            z=[list(low + shares * (high - low))],
            text=[["said"] * 201],
            zmin=low,
            zmax=high,
            colorscale=scale,
        )
    )
    cells = sample_colorscale([list(stop) for stop in scale], list(shares))
    written = write_cells(figure).data[1]
    for cell, color in zip(cells, written.textfont.color, strict=True):
        assert contrast(color, as_hex(cell)) >= 4.5, cell
    assert {text_on("rgb(0, 0, 0)"), text_on("rgb(255, 255, 255)")} == {"#ffffff", "#000000"}


def as_hex(color: str) -> str:
    return "#" + "".join(f"{round(part):02x}" for part in unlabel_rgb(color))


def test_a_label_looks_the_same_in_every_experiment_and_unlike_those_that_nobody_knows():
    look = run_looks(["mine"])["mine"]
    for others in (["baseline", "inductor"], ["mine-2", "mine-3", "zeta"], [*KNOWN, "eager-1"]):
        assert run_looks([*others, "mine"])["mine"] == look
        assert run_looks(["mine", *others])["mine"] == look
    assert run_looks(["mine", *KNOWN]) == {"mine": look, **KNOWN}
    labels = [f"mine-{number}" for number in range(40)]
    assert len(set(run_looks([*KNOWN, *labels]).values())) == len(KNOWN) + 40
    assert len(run_looks([f"mine-{number}" for number in range(200)])) == 200
    looks = run_looks(["baseline-1", "eager-1", "baseline-2", "eager-2", "mine-2"])
    assert looks["baseline-1"] == looks["baseline-2"] == KNOWN["baseline"], "they repeat it"
    assert looks["eager-1"] == looks["eager-2"] == KNOWN["eager"]
    assert looks["mine-2"] not in KNOWN.values()


def frame_of(column: str, labels: list[str], **columns: object) -> pd.DataFrame:
    """The same falling numbers for every run."""
    rows = [
        {
            "run_id": label,
            "label": label,
            "step": step,
            column: 2 - step / 50,
            **columns,
            "role": label if label in ("baseline", "control") else "backend",
        }
        for label in labels
        for step in range(50)
    ]
    return pd.DataFrame(rows)


LABELS = ["baseline", "control", "eager", "aot_eager", "inductor", "cudagraphs", "mine"]


def test_every_chart_gives_each_run_its_dash_or_its_marker():
    looks = run_looks(LABELS)
    lines = loss_charts.losses(frame_of("loss", LABELS)).data
    assert {line.name: (line.line.color, line.line.dash) for line in lines} == {
        label: (look.color, look.dash) for label, look in looks.items()
    }
    scores = score_charts.scores_of_runs(frame_of("value", LABELS, epoch=1), "accuracy").data
    assert {line.name: (line.line.dash, line.marker.symbol) for line in scores} == {
        label: (look.dash, look.symbol) for label, look in looks.items()
    }
    rounds = frame_of("speedup", LABELS, process="a").rename(columns={"step": "round"})
    dots = [trace for trace in speed_charts.round_by_round(rounds).data if trace.mode == "markers"]
    assert [dot.marker.symbol for dot in dots] == [look.symbol for look in looks.values()]
    cells = pd.DataFrame(
        {
            "backend": LABELS,
            "model": "m",
            "speedup": 1.0,
            "low": 0.9,
            "high": 1.1,
            "failure": [None] * 6 + ["wrong"],
            "earlier": None,
        }
    )
    marks = {trace.name: trace.marker.symbol[0] for trace in suite_charts.speedups(cells).data}
    assert marks == {label: look.symbol for label, look in looks.items()} | {
        "mine": f"{looks['mine'].symbol}-open"
    }
    assert len({look.color for look in SPLITS.values()}) == 3
    assert len({look.symbol for look in SPLITS.values()}) == 3


@pytest.mark.slow
@pytest.mark.browser
def test_equal_losses_do_not_hide_each_other(browser: Browser, tmp_path: Path):
    figure = loss_charts.losses(frame_of("loss", LABELS)).update_layout(showlegend=False)
    figure.update_layout(template="plotly_white", width=900, height=400)
    figure.write_html(tmp_path / "losses.html", include_plotlyjs=True)
    page = browser.new_page(viewport={"width": 900, "height": 400})
    page.goto((tmp_path / "losses.html").as_uri())
    picture = page.locator(".main-svg").first.screenshot()
    page.close()
    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)
    for label, look in run_looks(LABELS).items():
        color = np.array([int(look.color[place : place + 2], 16) for place in (1, 3, 5)])
        seen = (np.abs(pixels - color).max(axis=2) <= 30).sum()
        assert seen >= 60, f"of {label}'s line {seen} pixels are seen"
