"""What charts show on hover: numbers with few digits and their unit, and complete names."""

import json
import re
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from breakeven.storage.profile.explanation import explain
from breakeven.views.charts import bars, speed
from breakeven.views.charts import compiling as compiling_charts
from breakeven.views.charts import over_steps as step_charts
from breakeven.views.charts.layout import over_steps
from breakeven.views.comparison import running, why
from breakeven.views.comparison.cards import all_cards
from breakeven.views.shared.address import FIRST_EXAMPLE
from tests.helpers.journals import EXPERIMENT_ID
from tests.helpers.pages import charts as charts_of
from tests.helpers.pages import every_tab, opened_run
from tests.helpers.pages_journals import record_rich

SHOWN = re.compile(r"%\{([xyz])(:[^}]+)?\}")


def raw(figure: dict[str, Any]) -> list[str]:
    """Traces whose hover text has a number with all its computed digits, or a shortened name."""
    layout, faults = figure["layout"], []
    for trace in figure["data"]:
        if trace.get("hoverinfo") == "skip":
            continue
        name = f"{trace.get('type')} {trace.get('name')}"
        if "hovertemplate" not in trace:
            faults.append(f"{name}: nothing says what is shown")
            continue
        for letter, format in SHOWN.findall(trace["hovertemplate"]):
            axis = layout.get(f"{letter}axis{trace.get(f'{letter}axis', letter)[1:]}", {})
            if not (format or is_words(trace.get(letter)) or "hoverformat" in axis):
                faults.append(f"{name}: {letter} has every digit")
        if layout.get("hovermode") == "x unified" and layout["hoverlabel"]["namelength"] != -1:
            faults.append(f"{name}: its name is cut")
    return faults


def is_words(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(value, str) for value in values)


def plain(figure: go.Figure) -> dict[str, Any]:
    """As the browser gets it."""
    return json.loads(figure.to_json())


def test_the_check_finds_a_chart_that_shows_what_was_computed():
    figure = go.Figure(go.Scatter(x=[1448.336], y=[133.6775], name="inductor"))
    assert raw(plain(figure)) == ["scatter inductor: nothing says what is shown"]
    figure.update_traces(hovertemplate="%{y} at %{x}")
    assert raw(plain(figure)) == [
        "scatter inductor: y has every digit",
        "scatter inductor: x has every digit",
    ]
    over_steps(figure, "Training time (s)")
    assert raw(plain(figure)) == []
    assert raw(plain(figure.update_layout(hoverlabel_namelength=15))) == [
        "scatter inductor: its name is cut"
    ]


@pytest.mark.slow
@pytest.mark.heavy  # all charts of an experiment: seconds
def test_no_chart_of_a_recorded_training_shows_a_number_with_every_digit(examples: Store):
    cards = [
        *all_cards(examples, compare(examples, FIRST_EXAMPLE)),
        *running.time_axis(examples, FIRST_EXAMPLE),
        why.card(explain(examples, FIRST_EXAMPLE)),
    ]
    drawn = [(card, name) for card in cards for name in card.figures]
    assert len(drawn) > 20
    for card, name in drawn:
        assert raw(plain(card.figure(name))) == [], (card.name, name)


def test_steps_are_whole_and_times_have_four_digits_and_their_unit():
    frame = pd.DataFrame(
        {
            "label": "inductor",
            "role": "backend",
            "step": [0, 1],
            "seconds": [0.0123, 0.0125],
            "compiled": False,
        }
    )
    figure = step_charts.step_series(frame)
    assert figure.data[0].hovertemplate == "%{y} ms"
    assert figure.layout.xaxis.unifiedhovertitle.text == "Step %{x}"
    assert figure.layout.yaxis.hoverformat == ",.4~r", "133.6775 is 133.7"
    assert figure.layout.xaxis.hoverformat == ",.0f", "1448.336 is 1,448"
    paid = speed.cumulative(frame.assign(seconds=[0.5, 0.6]), [])
    assert paid.data[0].hovertemplate == "%{y} s"


def test_a_box_says_its_quantiles_with_their_unit():
    # Steps of 10, 11, ..., 110 ms: the quantiles are 15, 35, 60, 85 and 105 ms.
    frame = pd.DataFrame({"label": "inductor", "seconds": [0.01 + n / 1000 for n in range(101)]})
    box, said = bars.step_times(frame).data
    assert box.hoverinfo == "skip"
    assert said.text == (
        "inductor: median 60.0 ms<br>half of the steps: 35.0 ms to 85.0 ms"
        "<br>9 of 10 steps: 15.0 ms to 105 ms",
    )


@pytest.mark.parametrize("quantity", ["cold", "warm"])
def test_the_latency_of_a_process_is_written_as_everywhere(quantity: str):
    data = pd.DataFrame(
        {"backend": ["inductor"], "repeat": 1, "cache": quantity, "seconds": [133.6775]}
    )
    (bar,) = compiling_charts.latencies(data).data
    assert (bar.text, bar.hovertemplate) == (
        ("2 min 14 s",),
        f"%{{y}}, {quantity}: %{{text}}<extra></extra>",
    )


@pytest.mark.heavy
def test_no_chart_of_the_pages_of_an_experiment_and_of_a_run_shows_every_digit(folder: DataDir):
    record_rich(folder)
    pages = [
        *every_tab(experiment=EXPERIMENT_ID),
        *(opened_run(part=part) for part in ("Steps", "Scores", "Gradients", "Compiling")),
    ]
    figures = [json.loads(line) for page in pages for line in charts_of(page).splitlines()]
    assert len(figures) > 12
    for figure in figures:
        assert raw(figure) == []
