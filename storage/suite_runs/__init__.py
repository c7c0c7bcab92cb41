"""Results of a suite run: its cells, their means, and changes since an earlier suite run."""
