"""How each layer folder of the parity vectors is compared with our operator: one module per folder.

Each module has ``check(case)``: build the operator from ``case.options``, load ``case``'s weights, compare.
"""
