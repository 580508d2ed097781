"""The command line: one function per command, whose signature and docstring define options and help."""
