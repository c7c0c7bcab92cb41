"""Calls `torch.compile`, and records its work."""
