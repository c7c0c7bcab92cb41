"""Experiments to start Launch from: plain specifications, adjusted to this machine, and earlier
experiments with all their settings.

If the earlier experiment failed, the error is shown at the field that caused the failure.
"""

import re
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple
from zlib import crc32

import pandas as pd
import streamlit as st

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.machine.quick_race import QUICK_RACE, REVIEWS, TINY
from breakeven.runner.protocol.states import FAILED_RUNS, RunState
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, TrainingSpec
from breakeven.runner.specs.fields import fields_of
from breakeven.runner.specs.workload import SCRIPT_DATA, SCRIPT_PREFIX, SCRIPT_TASK
from breakeven.runner.texts import read_json
from breakeven.storage import queries
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.queries import RunRecord
from breakeven.views.access.errors import error_words
from breakeven.views.shared import words
from breakeven.views.shared.inert import inert, prose

SCRIPT_TO_BE_NAMED = "/my-script.py"
TO_BE_NAMED = "my-data.csv"
"""Placeholder for data that the user has to name; the form shows an empty field."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A starting point; `spec` is complete and could be submitted unchanged."""

    title: str
    text: str
    spec: ExperimentSpec


def _preset(
    title: str, text: str, model: str, data: DataSpec, training: TrainingSpec, **others: Any
) -> Preset:
    """A preset whose experiment has its title as name, unless `others` names it."""
    given = {"name": title, "backends": ("inductor",), **others}
    spec = ExperimentSpec(model=ModelSpec(source=model), data=data, training=training, **given)
    return Preset(title=title, text=text, spec=spec)


PRESETS = {
    "quick": Preset(
        title="Quick race",
        text="A tiny BERT on generated star reviews, with and without Inductor, which compiles one "
        "layer and uses its code for all layers. A minute or two on a CPU.",
        spec=QUICK_RACE,
    ),
    "digits": _preset(
        "Digits",
        "A small vision transformer on 1,797 real scans of handwritten digits.",
        "builtin:vit-small",
        DataSpec(source="builtin:digits", num_train_samples=1440, num_eval_samples=357),
        TrainingSpec(learning_rate=3e-4, batch_size=32, epochs=4),
        task="image_classification",
    ),
    "language-model": _preset(
        "Language model",
        "A tiny GPT-2 learns to continue generated star reviews, word by word.",
        "builtin:gpt2-tiny",
        REVIEWS,
        TINY,
        task="causal_lm",
    ),
    "masked-words": _preset(
        "Masked words",
        "A tiny BERT learns to restore hidden words of generated reviews.",
        "builtin:bert-tiny",
        REVIEWS,
        TINY,
        task="masked_lm",
    ),
    "bert-base": _preset(
        "BERT-base on reviews",
        "The full-size BERT, for a GPU: 12 layers of width 768, on generated star reviews.",
        "builtin:bert-base",
        DataSpec(source="builtin:reviews", num_train_samples=3200, num_eval_samples=500),
        TrainingSpec(learning_rate=5e-5, batch_size=16),
        backends=("inductor", "cudagraphs"),
    ),
    "own": _preset(
        "Your own data",
        "A CSV, JSONL or Parquet file with a text and a label column, or a hub data set.",
        "builtin:bert-tiny",
        # Enough steps to learn real texts, so that parity can be judged: four topics of news
        # reach 86 % of 400 samples.
        DataSpec(
            source=TO_BE_NAMED, num_train_samples=7680, num_eval_samples=400, sequence_length=64
        ),
        TrainingSpec(learning_rate=5e-4, batch_size=32, max_steps=240),
        name="My data",
    ),
    "script": _preset(
        "Your own script",
        "Your training script, run in several ways: under compilers, with other arguments or "
        "variables, or as it is in another commit. It needs no change.",
        f"{SCRIPT_PREFIX}{SCRIPT_TO_BE_NAMED}",
        DataSpec(source=SCRIPT_DATA),
        TrainingSpec(),
        task=SCRIPT_TASK,
        name="My script",
    ),
}


PARAMETER = "again"
CHANGES = "changes"
"""Parameter of the address: fields with new values, by path, as JSON."""
FIELD_ERROR = re.compile(r"([a-z_.]+) = (?s:.*?): ((?s:.*))")
"""Our error message about a field: `training.batch_size = 64: rule`."""
FIELD_OF_STATE = {
    RunState.OUT_OF_MEMORY: ("training.batch_size", "the run ran out of memory"),
    RunState.TIMEOUT: ("time_limit_seconds", "a run took longer than this"),
}
"""Run states that one field causes: the field and the reason."""
FIELD_OF_ERROR = {"UnusableData": "data.source", "CodeNotAllowed": "callbacks"}
"""Names of Breakeven's errors that concern one field: the field."""


class Again(NamedTuple):
    """The experiment to run again."""

    key: str
    """Key of the form's widgets."""
    name: str
    when: pd.Timestamp
    spec: ExperimentSpec
    blamed: InvalidSpec | None
    """The field that made a run fail, with its value and the reason."""
    failure: str | None
    """Why a run failed, if no field caused it."""


def requested(store: Store) -> Again | None:
    """The experiment that the address names; None without one. A missing experiment is reported."""
    experiment_id = st.query_params.get(PARAMETER)
    if experiment_id is None:
        return None
    try:
        spec = queries.experiment_spec(store, experiment_id)
    except NotInStore as error:
        st.warning(prose(error), icon=":material/search_off:")
        return None
    if spec.kind.makes_trials:
        st.warning(
            "An investigation has no form; start it on the page of the run with the fault.",
            icon=":material/search:",
        )
        return None
    changes = st.query_params.get(CHANGES, "")
    try:
        spec = changed(spec, changes)
    except (ValueError, InvalidSpec) as error:
        st.warning(f"The change cannot be made: {error_words(error)}", icon=":material/error:")
    listed = queries.list_experiments(store).set_index("experiment_id").loc[experiment_id]
    blamed, failure = _why_failed(store, experiment_id, spec)
    return Again(
        key=f"again-{experiment_id}-{crc32(changes.encode())}",
        name=str(listed["name"]),
        when=listed["submitted"],
        # A cell of a suite run, or a repetition after lack of memory, becomes a separate
        # experiment.
        spec=replace(spec.on_its_own, name=str(listed["name"])),
        blamed=blamed,
        failure=failure,
    )


def changed(spec: ExperimentSpec, changes: str) -> ExperimentSpec:
    """The specification with changes from JSON, by path; raises `ValueError` for JSON of another
    form, and `InvalidSpec`."""
    values = read_json(changes) if changes else {}
    if not isinstance(values, dict):
        raise ValueError(f"{CHANGES} = {changes!r}: must be fields with their paths")
    content = asdict(spec)
    for path, value in values.items():
        section, _, name = str(path).rpartition(".")
        if section and not isinstance(content.get(section), dict):
            raise ValueError(f"{CHANGES} = {changes!r}: there is no field {path!r}")
        (content[section] if section else content)[name] = value
    return ExperimentSpec.from_dict(content)


def show_again(again: Again) -> None:
    """Shows the experiment that fills the form, and a button back to the presets."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"All settings of **{inert(again.name)}** ({words.moment(again.when)})")
        if st.button(
            "Start from a preset instead", key="no_again", type="tertiary", icon=":material/undo:"
        ):
            st.query_params.clear()
            st.rerun()
    if again.failure is not None:
        st.warning(f"**It failed.** {inert(again.failure)}", icon=":material/error:")


def _why_failed(
    store: Store, experiment_id: str, spec: ExperimentSpec
) -> tuple[InvalidSpec | None, str | None]:
    """The field that caused the failure, or else the first error message."""
    runs = queries.list_runs(store, experiment_id)
    message = None
    for run_id in runs.loc[runs["state"].isin(FAILED_RUNS), "run_id"]:
        record = queries.run_record(store, run_id)
        blamed = blame(spec, record)
        if blamed is not None:
            return blamed, None
        message = message or f"{record.arm.label}: {words.why_ended(record.reason, record.error)}"
    return None, message


def blame(spec: ExperimentSpec, record: RunRecord) -> InvalidSpec | None:
    """The field that made a run fail, if its end shows it."""
    known = {field.path: field for field in fields_of(ExperimentSpec)}
    path, rule = FIELD_OF_STATE.get(record.state, ("", ""))
    error = record.error
    if error is not None and not path:
        match = FIELD_ERROR.fullmatch(error.message.strip())
        if match is not None and match[1] in known:
            path, rule = match[1], match[2]
        else:
            path, rule = FIELD_OF_ERROR.get(error.name, ""), error.message.strip()
    return InvalidSpec(path, known[path].value_in(spec), rule) if path in known else None
