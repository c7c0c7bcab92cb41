"""The form of Launch."""
