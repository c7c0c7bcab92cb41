"""The hub of models and data sets: tests whether it answers, and says why a name is not found."""

import os
import time
from typing import Any

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.texts import printable

UNREACHABLE_VARIABLE = "BREAKEVEN_HUB_UNREACHABLE"
"""Holds the reason why the hub does not answer, for this process and its children."""
ATTEMPTS = 2
PAUSE_SECONDS = 1.0
"""Pause before the second attempt."""
MODEL_ADVICE = "Give a local folder, or one of the built-in models"
"""Advice after `why_not_found` if a model is not found."""


def go_offline_without_hub(experiment: ExperimentSpec) -> None:
    """Sets `HF_HUB_OFFLINE`, the hub library's own switch, if the experiment needs the hub and the
    hub does not answer. Then the library reads its cache at once; otherwise it makes four requests
    and tries each five times, which takes 23 s per request.

    Call this before the import of transformers and datasets, which read the switch.
    """
    if not _needs_hub(experiment):
        return
    try:
        from huggingface_hub import constants
    except ModuleNotFoundError:  # Without it, nothing asks the hub.
        return

    why = None if constants.HF_HUB_OFFLINE else _why_unreachable()
    if why is not None:
        os.environ[UNREACHABLE_VARIABLE] = why
        os.environ["HF_HUB_OFFLINE"] = "1"
        constants.HF_HUB_OFFLINE = True


def why_not_found(error: Exception) -> str:
    """The reason why a name of the hub was not found, as the text after the name."""
    why = os.environ.get(UNREACHABLE_VARIABLE)
    if why is not None:
        reason = f"the hub could not be reached ({why}), and no copy is cached here"
    elif os.environ.get("HF_HUB_OFFLINE"):
        reason = (
            "HF_HUB_OFFLINE is set, so Breakeven does not call the hub, and no copy is cached here"
        )
    else:
        reason = "the hub does not offer it, or could not be reached and no copy is cached here"
    detail = ""
    if why is None or not isinstance(error, OSError):
        first_line = str(error).strip().partition("\n")[0]
        detail = f" ({type(error).__name__}: {first_line})"
    return f"it is no local folder; {reason}.{detail}"


def from_pretrained(
    pretrained_class: Any, source: str, missing_part: str = "", **options: Any
) -> Any:
    """Loads from a local folder or the hub, as a class of transformers does, but runs no code from
    there. Raises `WorkloadError` with the reason and advice; `missing_part` begins the reason, such
    as "no tokenizer; "."""
    try:
        return pretrained_class.from_pretrained(source, trust_remote_code=False, **options)
    except Exception as error:
        advice = f"{why_not_found(error)} {MODEL_ADVICE}"
        raise WorkloadError(f"model.source = {source!r}: {missing_part}{advice}") from error


def _needs_hub(experiment: ExperimentSpec) -> bool:
    """Whether a source is neither built in, nor code, nor a local file or folder."""
    # Built-in sources and code have a colon: `builtin:reviews`, `script:train.py`.
    data = experiment.data
    sources = [experiment.model.source, *([] if data.is_file else [data.source])]
    return any(":" not in source and not os.path.exists(source) for source in sources)


def _why_unreachable() -> str | None:
    """The reason why the hub does not answer; None if it answers, also with an error
    status."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_SECONDS)
        try:
            get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
            return None
        except Exception as error:  # Its versions use different HTTP clients, with other errors.
            why = f"{constants.ENDPOINT}: {type(error).__name__}: {printable(error, 200)}"
    return why
