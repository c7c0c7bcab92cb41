"""Explains why a backend is faster or slower: where its steps and the baseline's spend time."""
