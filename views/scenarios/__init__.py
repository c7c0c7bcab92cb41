"""What the pages and reports of each scenario show; one module for each way to compare."""
