"""Export a checkpoint to an onboard bundle, checked against PyTorch."""
