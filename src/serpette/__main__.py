"""`python -m serpette`."""

from serpette.cli import main

main()
