"""From a checkpoint to a vehicle: the onboard bundle, its checks, and the runtime that needs no torch.

Nothing is imported here: ``runtime``, ``stream`` and ``bundle`` are NumPy and onnxruntime only; torch begins
in ``graphs`` and ``write``.
"""
