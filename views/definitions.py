"""Definitions of all numbers: `docs/metrics.md`, with an anchor for each number."""

import re

import streamlit as st

from breakeven.storage.numbers.metrics import METRICS, NUMBERS, Chapter, Definition, read_chapters
from breakeven.views.shared import words
from breakeven.views.shared.inert import Markdown

_scroll_to_anchor = st.components.v2.component(
    "scroll_to_anchor",
    js="""export default ({ parentElement }) => {
  const page = parentElement.ownerDocument;
  const target = page.getElementById(decodeURIComponent(page.location.hash.slice(1)));
  if (!target) return;
  const observer = new ResizeObserver(() => target.scrollIntoView());
  const stop = () => observer.disconnect();
  observer.observe(target.closest('[data-testid="stMainBlockContainer"]'));
  for (const event of ["wheel", "keydown", "pointerdown", "touchstart"])
    page.addEventListener(event, stop, { once: true, passive: true });
  return stop;
}""",
)
"""Scrolls to the anchor in the address until the reader scrolls: Streamlit scrolls once, before the
text above the anchor has its final height."""


def main() -> None:
    words.name_tab("Definitions")
    chapters = read_chapters()
    st.header(chapters[0].title, anchor=False)
    titles = [f"[{chapter.title}](#{anchor_of(chapter.title)})" for chapter in chapters[1:]]
    st.caption(" · ".join(titles))
    for chapter in chapters:
        show_chapter(chapter, headed=chapter is not chapters[0])
    _scroll_to_anchor()


def show_chapter(chapter: Chapter, *, headed: bool) -> None:
    if headed:
        st.subheader(chapter.title, anchor=anchor_of(chapter.title), divider="gray")
    st.markdown(cross_linked(chapter.introduction))
    for definition in chapter.definitions:
        show_definition(definition)


def show_definition(definition: Definition) -> None:
    """Shows a definition under the number's title on pages and its name in downloads."""
    number = NUMBERS.get(definition.anchor)
    name = f":small[:gray[`{definition.anchor}`]]"
    title = f"{number.axis_title} {name}" if number else f"`{definition.anchor}`"
    st.subheader(title, anchor=definition.anchor)
    st.markdown(cross_linked(definition.text))


def cross_linked(text: Markdown) -> Markdown:
    """Links names of metrics to their definitions; shows links to files as text."""
    text = re.sub(r"\[([^]]+)\]\(([\w-]+\.md[^)]*)\)", r"\1: `docs/\2`", text)
    return re.sub(
        r"`(\w+)`",
        lambda match: f"[{match[0]}](#{match[1]})" if match[1] in METRICS else match[0],
        text,
    )


def anchor_of(title: Markdown) -> Markdown:
    return re.sub(r"\W+", "-", title.lower())


main()
