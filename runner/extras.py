"""Packages that only parts of Breakeven need, and how to install them."""

from importlib.util import find_spec

BASE = ("duckdb", "numpy", "orjson", "packaging", "pandas", "pyarrow", "rich", "scipy", "torch")
"""Modules of the package without extras."""
EXTRAS = {
    "ui": ("apprise", "kaleido", "plotly", "starlette", "streamlit"),
    "hf": ("PIL", "datasets", "sklearn", "tokenizers", "torchmetrics", "transformers"),
    "cluster": ("ray", "submitit"),
}
"""Modules of each extra of `pyproject.toml`; `[team]` has no modules that Python imports."""


def missing_words(module: str) -> str | None:
    """What to install for a module that Python does not find; None for a module that no part of
    Breakeven names, or that is there."""
    outermost = module.partition(".")[0]
    extra = next((name for name, modules in EXTRAS.items() if outermost in modules), None)
    if (extra is None and outermost not in BASE) or find_spec(outermost) is not None:
        return None
    return f"needs {outermost}, which is not installed here: {how_to_install(extra)}"


def how_to_install(extra: str | None) -> str:
    """The command that installs an extra, or the package without extras."""
    return "pip install breakeven" if extra is None else f"pip install 'breakeven[{extra}]'"
