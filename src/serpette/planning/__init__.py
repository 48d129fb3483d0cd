"""Which sites to remove: from a profile to a plan."""
