"""Scenario -> SceneBatch: features in local frames, typed relations, flattened batches.

Nothing is imported here: ``trajpred.graph.features`` needs NumPy alone and also serves the onboard runtime;
torch is first imported by ``trajpred.graph.relations`` and ``trajpred.graph.scene_graph``.
"""
