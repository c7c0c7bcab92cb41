"""Compares an experiment's runs: from the index to results, warnings and notes."""
