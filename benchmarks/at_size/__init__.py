"""The parts of `benchmarks.library_at_size`: other tools, the page Live, the document."""
