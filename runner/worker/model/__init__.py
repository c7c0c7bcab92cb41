"""Models, what they minimize, and how their answers are scored."""
