"""Parts of Suites."""
