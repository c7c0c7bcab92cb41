"""What people write on the command line: fields as options, conditions, filters, lengths."""
