"""Scenario -> SceneBatch: features in local frames, typed relations, flattened batches.

Nothing is imported here: agents, lanes and scene features need only NumPy and also serve the onboard runtime;
torch is first imported by ``trajpred.features.scene_graph``.
"""
