"""Every run is told from every other, on either background, by people of every colour vision."""

import io
import tomllib
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from playwright.sync_api import Browser

from breakeven.views.charts import layers as charts
from breakeven.views.charts import library as suite_charts
from breakeven.views.charts import run as score_charts
from breakeven.views.charts import speed as speed_charts
from breakeven.views.charts.palette import BAD, COLORS, KNOWN, OTHERS, SPLITS, run_looks
from tests.helpers.colour_vision import VISIONS, contrast, difference, linear, seen_difference

CONFIG = tomllib.loads((Path(__file__).parents[2] / ".streamlit" / "config.toml").read_text())
BACKGROUNDS = [CONFIG["theme"][theme]["backgroundColor"] for theme in ("light", "dark")]
USUAL = ("baseline", "eager", "aot_eager", "inductor", "cudagraphs")
"""What nearly every experiment compares; told apart by colour alone."""
CLEAR = 12.0
"""CIEDE2000 of colours that are told apart at a glance, as thin lines too; 2 is just noticeable."""


def test_the_simulation_leaves_greys_alone_and_confuses_what_those_people_confuse():
    # Of the test data that Sharma, Wu and Dalal publish with the formula.
    seen = difference(np.array((50, 2.5, 0)), np.array((73, 25, -18)))
    assert seen == pytest.approx(27.1492, abs=1e-4)
    for vision, matrix in VISIONS.items():
        assert matrix @ linear("#808080") == pytest.approx(linear("#808080"), abs=1e-5), vision
    # The colours of inductor and aot_eager until now; few people with deuteranopia told them apart.
    assert seen_difference("#2f7fe0", "#9b5de5", "usual") > CLEAR
    for vision in ("deuteranopia", "protanopia"):
        assert seen_difference("#2f7fe0", "#9b5de5", vision) < 5


@pytest.mark.parametrize("vision", VISIONS)
def test_usual_backends_are_told_apart_by_their_colours_alone(vision: str):
    for one, other in combinations(USUAL, 2):
        seen = seen_difference(KNOWN[one].color, KNOWN[other].color, vision)
        assert seen >= CLEAR, (one, other)


@pytest.mark.parametrize("vision", VISIONS)
def test_whoever_looks_alike_in_colour_differs_in_dash_and_marker(vision: str):
    looks = {**KNOWN, **{f"other {number}": look for number, look in enumerate(OTHERS)}}
    alike = [
        (one, other)
        for one, other in combinations(looks, 2)
        if seen_difference(looks[one].color, looks[other].color, vision) < CLEAR
        and (looks[one].dash == looks[other].dash or looks[one].symbol == looks[other].symbol)
    ]
    # Nobody else has dash and marker of a label that is not known; two such labels may share them,
    # but then hardly ever look alike: `run_looks` parts those that have all three in common.
    assert not [pair for pair in alike if not all(name.startswith("other") for name in pair)]
    assert len(set(OTHERS)) == len(OTHERS)


def test_colours_stand_out_from_every_background():
    for color in {*COLORS, BAD, *(look.color for look in (*KNOWN.values(), *OTHERS))}:
        for background in BACKGROUNDS:
            assert contrast(color, background) >= 3, (color, background)


def test_a_label_looks_the_same_in_every_experiment_and_unlike_those_that_nobody_knows():
    mine = run_looks(["mine"])["mine"]
    for others in (["baseline", "inductor"], ["mine-2", "mine-3", "zeta"], [*KNOWN, "eager-1"]):
        assert run_looks([*others, "mine"])["mine"] == mine
        assert run_looks(["mine", *others])["mine"] == mine
    assert run_looks(["mine", *KNOWN]) == {"mine": mine, **KNOWN}
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
        {"run_id": label, "label": label, "step": step, column: 2 - step / 50, **columns,
         "role": label if label in ("baseline", "control") else "backend"}
        for label in labels for step in range(50)
    ]  # fmt: skip
    return pd.DataFrame(rows)


LABELS = ["baseline", "control", "eager", "aot_eager", "inductor", "cudagraphs", "mine"]


def test_every_chart_gives_each_run_its_dash_or_its_marker():
    looks = run_looks(LABELS)
    lines = charts.losses(frame_of("loss", LABELS)).data
    assert {line.name: (line.line.color, line.line.dash) for line in lines} == {
        label: (look.color, look.dash) for label, look in looks.items()
    }
    scores = score_charts.scores_of_runs(frame_of("value", LABELS, epoch=1), "accuracy").data
    assert {line.name: (line.line.dash, line.marker.symbol) for line in scores} == {
        label: (look.dash, look.symbol) for label, look in looks.items()
    }
    rounds = frame_of("speedup", LABELS, process="a").rename(columns={"step": "round"})
    dots = [one for one in speed_charts.round_by_round(rounds).data if one.mode == "markers"]
    assert [dot.marker.symbol for dot in dots] == [look.symbol for look in looks.values()]
    cells = pd.DataFrame({"backend": LABELS, "model": "m", "speedup": 1.0, "low": 0.9, "high": 1.1,
                          "failure": [None] * 6 + ["wrong"], "earlier": None})  # fmt: skip
    marks = {one.name: one.marker.symbol[0] for one in suite_charts.speedups(cells).data}
    assert marks == {label: look.symbol for label, look in looks.items()} | {
        "mine": f"{looks['mine'].symbol}-open"
    }
    assert len({look.color for look in SPLITS.values()}) == 3
    assert len({look.symbol for look in SPLITS.values()}) == 3


@pytest.mark.browser
def test_equal_losses_do_not_hide_each_other(browser: Browser, tmp_path: Path):
    figure = charts.losses(frame_of("loss", LABELS)).update_layout(showlegend=False)
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
