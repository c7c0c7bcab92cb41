"""Paths of Breakeven's own files."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
"""The folder `breakeven` with code, pages, examples and documents. In a checkout it contains links
to the folders of the checkout."""
PROJECT_ROOT = PACKAGE.parent
"""The folder that `breakeven` is imported from: a checkout, or `site-packages`."""
IS_CHECKOUT = (PROJECT_ROOT / "pyproject.toml").is_file()
