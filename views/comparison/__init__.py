"""Parts of Compare."""
