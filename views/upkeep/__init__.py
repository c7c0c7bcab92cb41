"""What administrators look after: health, logs, disk, the actions of users."""
