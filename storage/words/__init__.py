"""Sentences and names that terminal, pages, reports and JSON show."""
