"""Run the command line by `python -m attnlaw`."""

from attnlaw.command import main

main()
