"""Export a trained model to an onboard bundle, checked against PyTorch; see README.md in this folder."""
