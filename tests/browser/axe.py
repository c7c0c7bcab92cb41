"""Finds accessibility problems of a page with axe-core."""

from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

LOOK = """([where, options]) => axe.run(where ?? document, options).then(result => result.violations
    .filter(violation => ['serious', 'critical'].includes(violation.impact))
    .flatMap(violation => violation.nodes.map(node =>
        `${violation.impact} ${violation.id}: ${node.html.slice(0, 200)} ` +
        node.failureSummary)))"""
OPTIONS = {"resultTypes": ["violations"], "preload": False, "rules": {"region": {"enabled": False}}}
"""`region` takes long and is never serious; no other rule looks at preloaded files."""


def serious(page: Page, where: str | None = None, **options: Any) -> list[str]:
    """Serious and critical problems of the page, or of a part of it, each with its element."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    findings: list[str] = page.evaluate(LOOK, [where, OPTIONS | options])
    return findings
