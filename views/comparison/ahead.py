"""What the first page needs, done while a server waits for its first reader."""

import gc
from contextlib import suppress
from importlib import import_module

from runner.errors import RunnerError
from runner.folders.states import ACTIVE_EXPERIMENTS
from storage.errors import StoreError

IMPORTED = (
    "storage.comparison.comparison",
    "views.comparison.charts",
    "views.comparison.ladder",
    "views.comparison.measured_again",
    "views.comparison.accuracy",
    "views.comparison.cache",
    "views.parts.damaged",
    "views.parts.exchange",
    "views.report.menu",
    "plotly.offline",
    "plotly.graph_objs",
    "scipy.special",
    "streamlit.components.v2.manifest_scanner",
)
"""What Compare takes a second or two to import."""


def prepare() -> None:
    """Imports, opens the store, and compares what the first page shows: the newest experiment that
    is over. Beside one that goes on nothing is computed before somebody asks."""
    for name in IMPORTED:
        import_module(name)
    gc.freeze()  # The collector need not look again and again through what stays for good.
    # Whatever is wrong, the first page says so.
    with suppress(StoreError, RunnerError, OSError):
        compare_newest()


def compare_newest() -> None:
    """Draws the charts too; whoever comes first finds them kept. Who is there already, maybe for
    another experiment, is not kept waiting by it."""
    from storage import queries
    from storage.comparison.comparison import compare
    from views.comparison.charts import draw
    from views.shared.resources import data_dir, open_store, process_wide

    store, folder = open_store(), data_dir().path
    store.ingest_all()
    experiments = queries.list_experiments(store)
    states = experiments["state"]
    read = process_wide().read
    if folder in read or experiments.empty or states.isin(ACTIVE_EXPERIMENTS).any():
        return
    comparison = compare(store, str(experiments["experiment_id"].iloc[0]))
    if folder not in read:
        draw(store, comparison)
