"""Ways through the dashboard: from page to page without reloading, as its links do, and to a new
experiment."""

import re

from playwright.sync_api import Page, expect

GO = """address => {
    window.hasRun = false;
    new MutationObserver(() => window.hasRun = true)
        .observe(document.body, {attributeFilter: ['data-test-script-state'], subtree: true});
    history.pushState({}, '', address);
    const ask = () => {
        if (window.hasRun) return;
        dispatchEvent(new PopStateEvent('popstate', {state: {}}));
        setTimeout(ask, 10000);
    };
    ask();
}"""
"""Goes to an address as the browser's own buttons do; `hasRun` tells that the page began to run. A
change of the theme replaces the app, so the observer watches the whole document, and an event
without an effect is sent again."""
AT_REST = "[data-testid=stApp][data-test-script-state=notRunning]"


def go(page: Page, address: str) -> None:
    """Polls ten times a second: polling at every frame would take the processor."""
    if page.url == "about:blank":  # It has no page of ours to go from.
        page.goto(address)
        page.locator(AT_REST).wait_for()
        return
    page.evaluate(GO, address)
    page.wait_for_function("window.hasRun", polling=100)
    page.locator(AT_REST).wait_for()


def fits(page: Page) -> bool:
    """Whether the page is not wider than the screen."""
    main = page.locator("[data-testid=stMain]")
    return bool(main.evaluate("box => box.scrollWidth <= box.clientWidth"))


EAGER = "&quick.debug_backends=eager"
"""The backend that compiles fastest."""


def launch(
    page: Page, address: str, num_samples: int, fields: str = EAGER, processes: str = "3 processes"
) -> str:
    """Launches baseline, control and a backend of a tiny BERT through the form; returns the id.
    `fields`: more fields, as in the address; they may lead to fewer runs."""
    page.goto(
        f"{address}/launch?quick.train_samples={num_samples}&quick.sequence_length=16"
        f"&quick.eval_samples=64&quick.backends={fields}"
    )
    expect(page.get_by_text(f"{num_samples // 8:,} steps each")).to_be_visible()
    expect(page.get_by_text(processes)).to_be_visible()
    page.get_by_role("button", name="Launch").click()
    page.wait_for_url(re.compile(r"/experiment\?.*experiment="))
    match = re.search(r"experiment=([\w-]+)", page.url)
    assert match
    return match[1]
