"""Running experiments: processes, the turn that they pass, how they end."""
