"""Overviews of all experiments: stored summaries, the catalog, filters, trends and devices."""
