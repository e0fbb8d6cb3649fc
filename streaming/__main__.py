"""`python -m streaming` is the `fresco` command."""

from streaming.cli.commands import main

main()
