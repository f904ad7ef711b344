"""`python -m server.cli`, the same as `autotune`."""

from server.cli import main

main()
