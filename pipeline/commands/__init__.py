"""One module for each command: `add_arguments(parser)` and `run(args)`."""
