"""What is worth waking somebody for, told once, by a POST of JSON or by mail."""
