"""What whoever runs the dashboard looks after: health, logs, disk, what people did."""
