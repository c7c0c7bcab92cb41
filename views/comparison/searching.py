"""Links between a search and the training that confirms its answer."""

import streamlit as st

from breakeven.runner.folders.states import ExperimentState
from breakeven.runner.specs.candidates import UNCONFIRMED
from breakeven.storage import queries
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.views.shared.address import write_address
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.links import linked


def show(store: Store, comparison: Comparison) -> None:
    """Links a search to its confirmation, and a confirmation to its search."""
    spec = comparison.spec
    if spec.confirms is not None:
        _open_button("The search", ":material/manage_search:", spec.confirms)
    if not spec.kind.searches:
        return
    listed = queries.list_experiments(store)
    found = listed[listed["confirms"] == comparison.experiment_id]
    if found.empty:
        ended = next((one.figures["reason"] for one in comparison.notes
                      if one.kind == "search ended"), "")  # fmt: skip
        why = f" The search ended because {inert(ended)}." if ended else ""
        st.info(UNCONFIRMED + why, icon=":material/manage_search:")
        return
    row = found.iloc[0]
    state = ExperimentState(row["state"])
    with st.container(horizontal=True, vertical_alignment="center"):
        verb = "are trained" if state.is_active else "were trained"
        finalists = linked("speedup", "The best candidates")
        st.markdown(f"{finalists} {verb} from the beginning, in fresh processes.", width="content")
        _open_button("The confirmed answer", ":material/verified:", str(row["experiment_id"]))


def _open_button(label: Markdown, icon: str, experiment_id: str) -> None:
    st.button(label, icon=icon, key=f"open-{experiment_id}", on_click=write_address,
              kwargs={"experiment": experiment_id})  # fmt: skip
