"""Training: the LightningModule, its losses, and the ``train`` command."""
