"""DuckDB's extensions, from Python packages: nothing is fetched while Breakeven runs."""

from importlib.util import find_spec
from pathlib import Path

import duckdb

from breakeven.storage.errors import TeamStoreUnusable

PACKAGES = "requirements-team.txt"


def load(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Loads an extension; raises `TeamStoreUnusable` with what to install."""
    package = f"duckdb_extension_{name}"
    spec = find_spec(package)
    missing = (
        f"A team's store needs DuckDB's extension {name} {duckdb.__version__}: "
        f"pip install -r {PACKAGES}"
    )
    if spec is None or spec.origin is None:
        raise TeamStoreUnusable(f"{missing} (the package {package} is not installed)")
    versions = Path(spec.origin).parent / "extensions"
    file = versions / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    if not file.is_file():
        found = ", ".join(sorted(one.name for one in versions.glob("v*"))) or "none"
        raise TeamStoreUnusable(f"{missing} (of {package}, only {found} is installed)")
    try:
        connection.execute(f"LOAD '{quoted(file)}'")
    except duckdb.Error as error:
        raise TeamStoreUnusable(f"{missing} ({file} cannot be loaded: {error})") from None


def quoted(text: object) -> str:
    """Within single quotes of a statement."""
    return str(text).replace("'", "''")
