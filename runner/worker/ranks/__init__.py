"""What the processes of one run on several devices do together."""
