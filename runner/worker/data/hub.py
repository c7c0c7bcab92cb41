"""The hub of models and data sets: whether it can be reached, and advice if it cannot."""

import os
import time

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.texts import printable

UNREACHABLE_VARIABLE = "BREAKEVEN_HUB_UNREACHABLE"
"""Why the hub could not be reached, for this process and those that it starts."""
ATTEMPTS = 2
PAUSE_SECONDS = 1.0
"""Before the second attempt."""
GIVE_MODEL = "Give a local folder, or one of the built-in models"
"""Advice for a model that is not found, after `hub_advice`."""


def go_offline_without_hub(experiment: ExperimentSpec) -> None:
    """Sets `HF_HUB_OFFLINE`, the hub library's own switch, if a name of the hub is needed and
    the hub does not answer. With it the library looks into its cache at once; without it, each of
    four requests is repeated five times, which takes 23 s a request.

    To be called before transformers and datasets are imported, since both read the switch then.
    """
    if not _may_ask_hub(experiment):
        return
    from huggingface_hub import constants

    why = None if constants.HF_HUB_OFFLINE else _why_unreachable()
    if why is not None:
        os.environ[UNREACHABLE_VARIABLE] = why
        os.environ["HF_HUB_OFFLINE"] = "1"
        constants.HF_HUB_OFFLINE = True


def hub_advice(error: Exception) -> str:
    """Why nothing was found under a name of the hub, as the text after the name."""
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


def _may_ask_hub(experiment: ExperimentSpec) -> bool:
    """Whether a source is neither built in, nor code, nor a local file or folder."""
    data = experiment.data
    sources = [experiment.model.source, *([] if data.is_file else [data.source])]
    return any(":" not in source and not os.path.exists(source) for source in sources)


def _why_unreachable() -> str | None:
    """None if the hub answers, whatever its answer is."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_SECONDS)
        try:
            get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
            return None
        except Exception as error:  # The library's HTTP client is another one in each version.
            why = f"{constants.ENDPOINT}: {type(error).__name__}: {printable(error, 200)}"
    return why
