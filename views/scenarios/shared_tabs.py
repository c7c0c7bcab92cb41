"""Tabs that several scenarios show."""

import pandas as pd
import streamlit as st

from breakeven.storage import queries
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.views.parts import exchange
from breakeven.views.parts.actions import show_command
from breakeven.views.tabs import run


def show_one_run(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """Shows one run, in scenarios whose verdict already has the table of all runs."""
    chosen = run.choose(queries.list_runs(store, comparison.experiment_id), all_runs=False)
    assert chosen is not None
    run.show(store, experiment, chosen)


def show_settings(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """How to run the experiment again, its settings, and PyTorch's own formats."""
    st.markdown("**The same experiment without the browser**")
    if comparison.spec.investigates is None:
        show_command(comparison.spec)
    else:
        st.code(f"breakeven investigate {comparison.spec.investigates}", language="bash")
    if comparison.spec.kind.has_speedups:
        exchange.buttons(store, comparison.experiment_id)
        exchange.show_imported(store, comparison.experiment_id)
    baseline = queries.list_runs(store, comparison.experiment_id).iloc[0]
    run.show_environment(store, baseline, queries.run_record(store, baseline["run_id"]))
    with st.expander("Specification of the experiment", icon=":material/data_object:"):
        st.code(comparison.spec.to_json(), language="json", wrap_lines=True)
