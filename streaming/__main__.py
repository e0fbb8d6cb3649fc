"""`python -m streaming` is the `fresco` command."""

from streaming.cli import main

main()
