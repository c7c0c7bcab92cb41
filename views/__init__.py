"""The dashboard's pages and what they share. Reads through `storage`, writes only the queue."""
