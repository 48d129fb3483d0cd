"""Saving models so that others can load them, and loading them again."""
