"""Export a trained model to an onboard bundle, checked against PyTorch; see docs/how-to/export.md."""
