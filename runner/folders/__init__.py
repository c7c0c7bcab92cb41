"""Run folders: their files, their journals, the queue that they form."""
