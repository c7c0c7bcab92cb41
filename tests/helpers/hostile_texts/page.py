"""A Streamlit page that shows every hostile text in every way in which pages show texts."""

import plotly.graph_objects as go
import streamlit as st

from breakeven.views.shared.inert import code, inert, inert_figure
from tests.helpers.hostile_texts.texts import ODD, TEXTS

for number, text in enumerate([*TEXTS, *ODD]):
    st.html(f'<p class="html-{number}" title="{inert(text)}">{inert(text)}</p>')
    with st.container(key=f"plain-{number}"):
        st.markdown(inert(text))
    with st.container(key=f"bold-{number}"):
        st.markdown(f"**{inert(text)}**, [{inert(text)}](definitions#speedup)")
    with st.container(key=f"code-{number}"):
        st.markdown(code(text))
    with st.container(key=f"label-{number}"):
        st.button(inert(text), key=f"button-{number}", help=inert(text))

figure = go.Figure(layout={"title": TEXTS[0]})
for text in [*TEXTS, *ODD]:
    figure.add_scatter(x=[1, 2], y=[text, text], name=text, mode="markers")
st.plotly_chart(inert_figure(figure), key="figure")
