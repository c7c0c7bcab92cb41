"""Results that cannot change any more, kept beyond the process that computed them."""
