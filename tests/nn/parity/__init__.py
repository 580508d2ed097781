"""Comparison of each layer folder of the parity vectors with our operator, one module per folder.

Each has ``check(case)``: build the operator from ``case.options``, load the weights, compare the outputs.
"""
