"""Figures are written down for a page unchecked: here plotly checks those of all examples."""

import json

import plotly.graph_objects as go
import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from breakeven.views.comparison.cards import all_cards
from breakeven.views.shared.figure import Figure
from breakeven.views.shared.resources import EXAMPLES


def test_every_figure_of_the_examples_is_one_that_plotly_accepts(data_dir: DataDir) -> None:
    told = 0
    with Store.in_memory(data_dir, EXAMPLES) as store:
        for one in queries.list_experiments(store)["experiment_id"]:
            comparison = compare(store, one)
            if comparison.spec.kind.compares != "runs":
                continue
            for card in all_cards(store, comparison):
                for name in card.figures:
                    written = card.written(name, "group")
                    again = go.Figure(json.loads(written))
                    assert json.loads(again.to_json())["data"] == json.loads(written)["data"]
                    told += 1
    assert told > 60


def test_what_plotly_would_not_accept_is_found() -> None:
    wrong = Figure().add_scatter(x=[1], y=[1], line={"colour": "red"})
    with pytest.raises(ValueError, match="colour"):
        go.Figure(wrong.to_dict())
