"""Run folders: their files, their journals, and the queue of runs without a claim."""
