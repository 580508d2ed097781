"""Training of forecasters. To follow one step from the command on, read in this order:

``train`` (command, config, run folder), ``lit_forecaster`` (the step: losses, gradients, validation),
``losses``, ``optimizer`` (AdamW, schedule, check for non-finite numbers). Around them: ``settings`` (command
line and configs), ``checkpoint_io`` (saving and finding checkpoints), ``record`` (facts, curves, folder and
printed lines of a run), ``distributed`` (sums over processes).
"""
