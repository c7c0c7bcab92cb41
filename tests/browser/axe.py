"""What axe-core finds on a page."""

from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

LOOK = """([where, options]) => axe.run(where ?? document, options).then(found => found.violations
    .filter(one => ['serious', 'critical'].includes(one.impact))
    .flatMap(one => one.nodes.map(node =>
        `${one.impact} ${one.id}: ${node.html.slice(0, 200)} ${node.failureSummary}`)))"""
OPTIONS = {"resultTypes": ["violations"], "preload": False, "rules": {"region": {"enabled": False}}}
"""`region` takes long and is never serious; what could be preloaded no rule looks at."""


def serious(page: Page, where: str | None = None, **options: Any) -> list[str]:
    """What is serious or critical on the page or in a part of it, each with its place."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    findings: list[str] = page.evaluate(LOOK, [where, OPTIONS | options])
    return findings
