"""The onboard runtime: from a bundle to forecasts, with NumPy and onnxruntime alone."""
