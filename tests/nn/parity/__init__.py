"""Comparisons of the parity vectors with our operators, one module per publication.

``check_LAYER(case)`` builds the operator of a folder of vectors from ``case.options``, loads the weights, and
compares the outputs.
"""
