"""The published operators, one file for each."""
