"""Scenario -> SceneGraph: features in local frames, typed relations, flattened batches.

Nothing is imported here: ``trajpred.graph.features`` is NumPy only and also serves the onboard runtime,
torch begins in ``trajpred.graph.scene_graph``.
"""
