"""Pages of the scenario `investigate`: the cause of a fault, and the trials that showed it."""

import pandas as pd

from breakeven.runner.protocol.states import ExperimentState
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.storage.investigation import load_investigation
from breakeven.storage.words import investigation as investigation_words
from breakeven.views.comparison import related_experiments, running
from breakeven.views.scenarios.base import Page, Scenario, Show, Table
from breakeven.views.scenarios.shared_tabs import show_one_run, show_settings
from breakeven.views.shared.inert import inert


def show_cause(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """The answer with its trials, and why the run failed, if it did."""
    related_experiments.show(store, experiment, comparison)
    if ExperimentState(experiment["state"]).is_final:
        running.show_failures(store, comparison.experiment_id)


def report(store: Store, comparison: Comparison) -> Page:
    """The cause and the trials that showed it."""
    investigation = load_investigation(store, comparison.experiment_id)
    rows = map(investigation_words.trial_cells, investigation.trials)
    trials = pd.DataFrame(rows, columns=list(investigation_words.TRIAL_HEADER))
    return Page(
        headline=inert(investigation_words.headline(investigation)),
        captions=[inert(fact) for fact in investigation_words.facts(investigation)],
        tables=[Table(title="Trials", name="trials", shown=trials, numbers=trials)],
    )


TABS: dict[str, Show] = {"Cause": show_cause, "Runs": show_one_run, "Settings": show_settings}
INVESTIGATE = Scenario(tabs=TABS, report=report)
