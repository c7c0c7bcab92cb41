"""Samples: read from files, made into tensors, cut into batches."""
