"""Training of forecasters. To follow one step from the command on, read in this order:

``train`` (command, config, run folder), ``lit_forecaster`` (the step: losses, gradients, validation),
``losses``, ``optimizer`` (AdamW, schedule, check for non-finite numbers). Around it: ``settings`` (the
command line and its configs), ``checkpoint_io`` (when checkpoints are saved, how they are found), ``record``
(facts, curves, folder and printed lines of a run), ``distributed`` (sums over processes).
"""
