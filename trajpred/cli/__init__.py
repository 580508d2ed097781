"""The command line: one function per command; its signature and docstring are the options and their help."""
