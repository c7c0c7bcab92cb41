"""Experiments of a data folder: the queue, further rounds, labels, the trash, disk space."""
