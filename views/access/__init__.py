"""Who reaches the dashboard, what they may do, which files they may use."""
