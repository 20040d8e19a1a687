"""`python -m attnlaw`: the command line."""

from attnlaw.command import main

main()
