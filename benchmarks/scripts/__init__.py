"""Training scripts: data for those that others wrote, and agreement with specifications."""
