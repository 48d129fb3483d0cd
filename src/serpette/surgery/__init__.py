"""Removing sites: pure changes of the module tree."""
