"""From page to page of the dashboard without loading it again, as its own links lead."""

from playwright.sync_api import Page

GO = """address => {
    const app = document.querySelector('[data-testid=stApp]');
    window.hasRun = false;
    new MutationObserver(() => window.hasRun = true)
        .observe(app, {attributeFilter: ['data-test-script-state']});
    history.pushState({}, '', address);
    dispatchEvent(new PopStateEvent('popstate', {state: {}}));
}"""
"""As the browser's own buttons do; `hasRun` says that the page began to run."""
AT_REST = "[data-testid=stApp][data-test-script-state=notRunning]"


def go(page: Page, address: str) -> None:
    """Looks ten times a second: with every frame, the frames take the processor."""
    page.evaluate(GO, address)
    page.wait_for_function("window.hasRun", polling=100)
    page.locator(AT_REST).wait_for()


def fits(page: Page) -> bool:
    """Whether the page is not wider than the screen."""
    main = page.locator("[data-testid=stMain]")
    return bool(main.evaluate("box => box.scrollWidth <= box.clientWidth"))
