"""What is known of every experiment at a glance: kept summaries, the catalog, filters."""
