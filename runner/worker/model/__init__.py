"""Models, also those of benchmark suites, what they minimize, and how their answers are scored."""
