"""The command line: arguments and their meaning, then one call into the package."""
