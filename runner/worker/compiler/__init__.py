"""`torch.compile`, and what it tells of its work."""
