"""Training of forecasters. To follow one step from the command on, read in this order:

``train`` (command, config, run folder), ``lit_forecaster`` (the step: losses, gradients, validation),
``losses``, ``optimizer`` (AdamW, schedule, check for non-finite numbers). Around it: ``progress`` (what is
printed), ``tensorboard``, ``checkpoint_io`` (when checkpoints are saved, how they are written and found),
``record`` (facts and curves of a run) and ``distributed`` (sums over processes).
"""
