"""Actions on the selected experiments: open, run again, label, archive, free space; and the disk
space of all experiments with the content of the trash."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pandas as pd
import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments import freeing_space, trash
from breakeven.runner.experiments.labels import change_labels
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import MAX_NAME, MAX_TAG, Labels
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog, forget_sizes
from breakeven.storage.numbers.formats import format_bytes
from breakeven.storage.side_by_side.sides import MAX_SIDES
from breakeven.views.access import permissions
from breakeven.views.parts.actions import again_link, errors_shown, launch
from breakeven.views.report import menu as report_menu
from breakeven.views.shared import words
from breakeven.views.shared.address import distinct, write_address
from breakeven.views.shared.definition_links import linked
from breakeven.views.shared.inert import Markdown, inert, notes, plain
from breakeven.views.shared.resources import capabilities, data_dir, ingest_or_warn

UNDO = "experiments undo"
"""Key in the session state: the last action, and how to undo it."""
REFUSED = "experiments refused"
"""Key in the session state: reasons why parts of the last action failed."""
LIBRARY = "views/all_experiments.py"
Act = Callable[[DataDir, str], object]


class Undo(NamedTuple):
    """The last action."""

    text: str
    experiment_ids: tuple[str, ...]
    act: Act | None
    """Undoes the action for each experiment; None if it cannot be undone."""


def show(store: Store, rows: pd.DataFrame) -> None:
    """A line of actions for these rows of the catalog, and the last action."""
    show_last(store)
    line = st.container(horizontal=True, vertical_alignment="center", gap="small", key="picked")
    with line:
        if rows.empty:
            more = ", run again, label, archive or delete" if permissions.may_act() else ""
            how = "Click a name, or press Enter on its row, to open it."
            st.caption(f"{how} Tick rows to compare{more} them.")
            return
        if len(rows) > 1:
            _show_side_by_side(rows)
        else:
            st.page_link(
                "views/experiment.py",
                label="Open",
                icon=":material/leaderboard:",
                query_params={"experiment": rows["experiment_id"].iloc[0]},
            )
        report_menu.links(*rows["experiment_id"].dropna())
        if permissions.may_act():
            _show_actions(store, rows)


@st.fragment
def show_menu(store: Store, experiment_id: str) -> None:
    """The same actions for the experiment of a page, in a menu that is made once it is open."""
    menu = st.popover("Manage", key="manage", type="tertiary", on_change="rerun")
    if not menu.open:
        return
    rows = catalog(store)
    own = rows[rows["experiment_id"] == experiment_id]
    with menu:
        _show_label_form(store, own)
        with st.container(horizontal=True):
            _show_archive(store, own)
            _show_delete(store, own, then=LIBRARY)
        _show_free(store, own)


def show_notes(rows: pd.DataFrame) -> None:
    """Shows the notes of the only selected experiment, below the table: above it, they would move
    the table away from the pointer."""
    if len(rows) == 1 and rows.iloc[0]["notes"]:
        with st.container(border=True):
            st.markdown(notes(rows.iloc[0]["notes"]))
    for problem in rows["problem"].dropna():
        st.caption(f":material/error: Not compared: {inert(permissions.redacted(problem))}")


def _show_side_by_side(rows: pd.DataFrame) -> None:
    if len(rows) > MAX_SIDES:
        many = words.plural(len(rows), "experiment")
        st.markdown(
            f"**{many}**",
            help=f"At most {MAX_SIDES:d} experiments can be compared.",
            width="content",
        )
    else:
        st.button(
            f"{words.plural(len(rows), 'experiment')} side by side",
            type="tertiary",
            icon=":material/compare_arrows:",
            key="side-by-side",
            on_click=write_address,
            kwargs={"view": "Side by side", "side": list(rows["experiment_id"])},
        )


def _show_actions(store: Store, rows: pd.DataFrame) -> None:
    if len(rows) == 1:
        experiment_id = rows["experiment_id"].iloc[0]
        if st.button(
            "Run again",
            icon=":material/replay:",
            key="again",
            help="Queues the experiment again, with all its settings.",
        ):
            with errors_shown():
                run_again(store, experiment_id)
        again_link(experiment_id, "with changes")
    own = rows[rows["origin"] == "local"]
    if own.empty:
        st.caption("An example cannot be labelled or deleted.", width="content")
        return
    with st.popover("Label", icon=":material/label:", width="content"):
        _show_label_form(store, own)
    _show_archive(store, own)
    if _bytes(own).any():
        with st.popover("Free space", icon=":material/storage:", width="content"):
            _show_free(store, own)
    _show_delete(store, own)


def _show_archive(store: Store, own: pd.DataFrame) -> None:
    are_archived = bool(own["archived"].all())
    if st.button(
        "Unarchive" if are_archived else "Archive",
        key="archive",
        icon=":material/unarchive:" if are_archived else ":material/archive:",
        help="Lists leave out archived experiments; nothing is lost.",
    ):
        done = "unarchived" if are_archived else "archived"
        _act(
            store,
            tuple(own["experiment_id"]),
            done,
            partial(_archive, archived=not are_archived),
            partial(_archive, archived=are_archived),
        )


def _show_delete(store: Store, own: pd.DataFrame, then: str | None = None) -> None:
    if st.button(
        "Delete",
        icon=":material/delete:",
        key="delete",
        help=f"To the trash, where it stays for {trash.TRASH_DAYS} days.",
    ):
        ids = tuple(own["experiment_id"])
        _act(store, ids, "deleted", trash.delete, trash.restore, then)


def run_again(store: Store, experiment_id: str) -> None:
    """Queues the same experiment once more and opens its page; raises `RunnerError`."""
    permissions.require_acting()
    spec = queries.experiment_spec(store, experiment_id)
    launch(spec.on_its_own, capabilities())


def _show_label_form(store: Store, own: pd.DataFrame) -> None:
    known = sorted({tag for tags in own["tags"] for tag in tags})
    experiment = own.iloc[0] if len(own) == 1 else None
    with st.form("label", border=False):
        name = text = ""
        if experiment is not None:
            name = st.text_input(
                "Name",
                value=experiment["name"],
                max_chars=MAX_NAME,
                key="label-name",
                help="If empty, the name at launch.",
            )
            text = st.text_area(
                "Notes",
                value=experiment["notes"],
                key="label-notes",
                max_chars=4096,
                help="Markdown: emphasis, headings, lists. Links, images and code "
                "are shown as plain text.",
            )
        shared = sorted(set.intersection(*(set(tags) for tags in own["tags"])))
        # Side by side: the list that opens below the tags would cover a button there.
        with st.container(horizontal=True, vertical_alignment="bottom"):
            tags = st.multiselect(
                "Tags",
                known,
                default=shared,
                accept_new_options=True,
                key="label-tags",
                filter_mode="prefix",
                select_all=False,
                help=f"Type a new one, of at most {MAX_TAG} characters."
                + (
                    ""
                    if experiment is not None
                    else " The field shows the tags that all of them have."
                ),
            )
            saved = st.form_submit_button("Save", type="primary")
        if not saved:
            return

    def change(before: Labels) -> Labels:
        after = before.tagged(tags, [tag for tag in shared if tag not in tags])
        if experiment is None:
            return after
        new_name = name.strip() or None
        unchanged = new_name == experiment["name"]
        return replace(after, name=before.name if unchanged else new_name, notes=text)

    def label(folder: DataDir, experiment_id: str) -> None:
        change_labels(folder, experiment_id, change)

    _act(store, tuple(own["experiment_id"]), "labelled", label, None)


def _bytes(own: pd.DataFrame) -> pd.Series:
    """Bytes of checkpoints and of other artifacts."""
    return own[["checkpoint_bytes", "artifact_bytes"]].fillna(0).astype(float).sum()


def _show_free(store: Store, own: pd.DataFrame) -> None:
    """Shows nothing if no space can be freed."""
    saved, others = _bytes(own)
    ids = tuple(own["experiment_id"])
    if saved or others:
        st.markdown("**Free space**: results stay. This cannot be undone.")
    if saved:
        st.caption("Without checkpoints, a run that ended early cannot resume.")
        if st.button(f"Remove checkpoints ({format_bytes(saved)})", key="free-checkpoints"):
            _act(store, ids, "without checkpoints now", freeing_space.free, None)
    if others:
        st.caption(
            "Other artifacts are files of runs besides the journal: "
            "predictions, copies of your own code."
        )
        all_of_it = format_bytes(saved + others)
        if st.button(f"Remove all artifacts ({all_of_it})", key="free-artifacts"):
            everything = partial(freeing_space.free, artifacts=True)
            _act(store, ids, "without artifacts now", everything, None)


def _archive(folder: DataDir, experiment_id: str, archived: bool) -> None:
    change_labels(folder, experiment_id, lambda old: replace(old, archived=archived))


def _act(
    store: Store,
    experiment_ids: Sequence[str],
    action: Markdown,
    act: Act,
    undo: Act | None,
    then: str | None = None,
) -> None:
    """Acts on each experiment, stores the results for `show_last`, and redraws the page or opens
    the page `then`."""
    permissions.require_acting()
    folder, done, refused = data_dir(), [], []
    for experiment_id in experiment_ids:
        try:
            act(folder, experiment_id)
            done.append(experiment_id)
        except RunnerError as error:
            refused.append(str(error))
    forget_sizes(store, done)
    ingest_or_warn(store.ingest_all)
    many = f"{words.plural(len(done), 'experiment')} {action}."
    st.session_state[UNDO] = Undo(many, tuple(done), undo) if done else None
    st.session_state[REFUSED] = refused
    if then and done:
        st.switch_page(then)
    st.rerun()


def show_last(store: Store, experiment_id: str | None = None) -> None:
    """Shows the last action, only if it was on this experiment if one is given, with a button to
    undo it, and the refusals."""
    for why in st.session_state.pop(REFUSED, ()):
        st.error(inert(why), icon=":material/error:")
    last: Undo | None = st.session_state.get(UNDO)
    if last is None or experiment_id not in (None, *last.experiment_ids):
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f":material/check: {inert(last.text)}", width="content")
        undo = last.act
        if undo is not None and st.button("Undo", icon=":material/undo:", key="undo"):
            _act(store, last.experiment_ids, "as before", undo, None)
        if st.button("Dismiss", key="undo-dismiss", type="tertiary"):
            st.session_state.pop(UNDO)
            st.rerun()


MAX_LISTED = 20
"""Most deleted experiments in the list, the latest first."""


def show_disk(store: Store, frame: pd.DataFrame) -> None:
    """A popover: sizes of the listed experiments, and the trash with a button to restore each."""
    with st.popover("Disk", icon=":material/storage:", width="content"):
        _show_sizes(frame)
        deleted = trash.deleted_experiments(data_dir())
        if not deleted:
            st.caption("The trash is empty.")
            return
        st.markdown(f"**Trash: {words.plural(len(deleted), 'experiment')}**")
        _show_deleted(store, deleted[:MAX_LISTED])
        if len(deleted) > MAX_LISTED:
            st.caption(f"The latest {MAX_LISTED} are listed.")
        if permissions.may_act() and st.button(
            "Empty the trash", key="empty-trash", help="Deletes them permanently."
        ):
            permissions.require_acting()
            with errors_shown():
                trash.empty_trash(data_dir())
                st.rerun()


def _show_deleted(store: Store, deleted: Sequence[trash.DeletedExperiment]) -> None:
    # Of several deleted experiments with one id, only the latest can be restored.
    latest = {experiment.experiment_id: experiment for experiment in reversed(deleted)}
    descriptions = distinct(
        {
            key: f"{plain(experiment.name)} · deleted "
            + words.moment(pd.Timestamp(experiment.deleted_at, unit="s", tz="UTC"))
            for key, experiment in latest.items()
        }
    )
    for key in reversed(latest):
        with st.container(
            horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"
        ):
            st.markdown(inert(descriptions[key]), width="content")
            if permissions.may_act() and st.button("Restore", key=f"restore-{key}"):
                permissions.require_acting()
                with errors_shown():
                    trash.restore(data_dir(), key)
                    ingest_or_warn(store.ingest_all)
                    st.rerun()


def _show_sizes(frame: pd.DataFrame) -> None:
    names = {
        "total_bytes": "All files",
        "checkpoint_bytes": "of these checkpoints",
        "artifact_bytes": "other artifacts",
    }
    known = frame["total_bytes"].notna()
    sums = {title: float(frame[name].fillna(0).sum()) for name, title in names.items()}
    totals = [
        f"{title} {linked('disk_bytes', format_bytes(total))}" for title, total in sums.items()
    ]
    missing = int((~known & frame["experiment_id"].notna()).sum())
    more = f" {words.plural(missing, 'experiment')} not measured yet." if missing else ""
    st.markdown(f"{', '.join(totals)}.{more}")
    st.caption(
        "Checkpoints take the most and results do not need them: tick experiments, then "
        "“Free space”."
    )
