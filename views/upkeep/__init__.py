"""The work of administrators: health, logs, disk, the actions of users."""
