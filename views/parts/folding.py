"""Sections that a phone shows folded, under a switch that only a phone has: a page is told of no
width, so the style does it."""

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from breakeven.views.shared.inert import Markdown


@contextmanager
def folded_on_phones(name: str, title: Markdown) -> Iterator[None]:
    """`name` is unique on the page."""
    with st.container(key=f"phone-fold-{name}"):
        st.toggle(title, key=f"phone-show-{name}")
        with st.container(key=f"phone-folded-{name}"):
            yield
