"""The charts of an experiment that is over are drawn once; whoever comes later sees and takes away
the same as if they were drawn anew."""

from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.comparison import comparison
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from breakeven.storage.kept.texts import LONG, packed, unpacked
from breakeven.views.comparison import charts, kept_charts
from breakeven.views.shared.resources import open_store
from tests.helpers.journals import EXPERIMENT_ID, record_experiment
from tests.helpers.pages import charts as charts_of
from tests.helpers.pages import opened, text


def forget() -> None:
    """As the end of the process does."""
    comparison._kept.clear()
    charts._kept.clear()


@pytest.fixture
def kept(folder: DataDir, drawn: list[str]) -> DataDir:
    """A folder whose one experiment is over and was drawn by a process that has ended."""
    record_experiment(folder.runs)
    open_store().ingest_all()
    charts.draw(open_store(), EXPERIMENT_ID)
    assert drawn == [EXPERIMENT_ID]
    forget()
    drawn.clear()
    return folder


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The experiments whose charts were drawn from the store."""
    found: list[str] = []
    draw = charts.cards

    def listen(store: Store, comparison: Any, *rest: Any) -> Any:
        found.append(comparison.experiment_id)
        return draw(store, comparison, *rest)

    monkeypatch.setattr(charts, "cards", listen)
    return found


def said(app: AppTest) -> list[str]:
    helps = [entry.proto.help for entry in app.markdown]
    choices = [str(entry.proto) for entry in app.get("button_group")]
    return [text(app), charts_of(app), *helps, *choices]


def drawn_anew(monkeypatch: pytest.MonkeyPatch, **query: str) -> AppTest:
    """The page as it is where nothing is kept."""
    with monkeypatch.context() as patch:
        patch.setattr(kept_charts, "find", lambda *_: None)
        forget()
        app = opened(experiment=EXPERIMENT_ID, **query)
        forget()
        return app


def test_the_page_says_and_shows_the_same_and_draws_nothing(
    kept: DataDir, drawn: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = opened(experiment=EXPERIMENT_ID)
    assert drawn == []
    assert said(app) == said(drawn_anew(monkeypatch))
    assert drawn == [EXPERIMENT_ID]
    assert '"uirevision":' in charts_of(app)


@pytest.mark.parametrize(
    "query", [{"loss": "Difference"}, {"break-even": "Time saved"}, {"runs": "baseline"}]
)
def test_whatever_else_is_asked_for_is_drawn_as_ever(
    kept: DataDir, monkeypatch: pytest.MonkeyPatch, query: dict[str, str]
) -> None:
    app = opened(experiment=EXPERIMENT_ID, **query)
    assert said(app) == said(drawn_anew(monkeypatch, **query))
    assert charts_of(app) != charts_of(opened(experiment=EXPERIMENT_ID))


def test_files_are_the_same(
    kept: DataDir,
    files: dict[str, Callable[[], bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ["download-loss.csv", "download-step-times.csv", "download-loss.html"]
    drawn_anew(monkeypatch)
    expected = [files[name]() for name in names]
    files.clear()
    opened(experiment=EXPERIMENT_ID)
    # The HTML names the place of its chart at random.
    assert [files[name]() for name in names[:2]] == expected[:2]
    assert len(files[names[2]]()) == len(expected[2])


def write_anew(store: Store) -> None:
    """As if the store had taken in something of every run."""
    store.write("UPDATE progress SET revision = (SELECT max(revision) + 1 FROM progress)")
    assert store._watch is not None
    store._watch.generation += 1


@pytest.mark.parametrize(
    "change",
    [
        lambda store, patch: patch.setattr(kept_charts, "drawing_version", lambda: "of tomorrow"),
        lambda store, _: store.write("UPDATE results SET seal = '' WHERE name = 'charts'"),
        lambda store, _: write_anew(store),
    ],
    ids=["other code", "not sealed", "another revision"],
)
def test_what_may_be_old_or_somebody_elses_is_drawn_anew(
    kept: DataDir,
    drawn: list[str],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Store, pytest.MonkeyPatch], None],
) -> None:
    change(open_store(), monkeypatch)
    opened(experiment=EXPERIMENT_ID)
    assert drawn == [EXPERIMENT_ID]


def test_what_is_drawn_while_something_arrives_is_not_kept_as_newer_than_it_is(
    folder: DataDir, drawn: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charts of a comparison that was made before are those of what it was made of."""
    record_experiment(folder.runs)
    store = open_store()
    store.ingest_all()
    old = compare(store, EXPERIMENT_ID)
    charts._charts(store, old, old.results)
    write_anew(store)
    charts.draw(store, EXPERIMENT_ID)
    assert drawn == [EXPERIMENT_ID] * 2


def test_long_texts_are_packed_and_come_back() -> None:
    long = '{"x":"' + "0123456789 ü" * LONG + '"}'
    assert len(packed(long)) < len(long) / 10
    assert unpacked(packed(long)) == long
    assert packed("[1]") == unpacked("[1]") == "[1]"
    for damaged in (packed(long)[:-8], "zlib ü", "zlib AAAA"):
        with pytest.raises(ValueError):
            unpacked(damaged)
