"""How long an experiment takes."""
