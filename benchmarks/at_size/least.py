"""The least that a page of Streamlit takes: one chart of six lines and one button, and nothing
that is ours. `benchmarks.library_at_size` times it beside the dashboard's pages."""

import plotly.graph_objects as go
import streamlit as st

NUM_LINES, NUM_POINTS = 6, 1000

figure = go.Figure()
for line in range(NUM_LINES):
    figure.add_scatter(x=list(range(NUM_POINTS)), y=[line + 1 / (1 + x) for x in range(NUM_POINTS)])
st.title("One chart")
st.plotly_chart(figure)
st.button("Time spent")
