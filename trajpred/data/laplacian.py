"""Eigenvectors of a graph's Laplacian, as positional encoding of its nodes. NumPy only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def normalized_laplacian(adjacency: NDArray[np.float64 | np.bool_]) -> NDArray[np.float64]:
    r"""Build the symmetric Laplacian of a graph, ``[n, n]``.

    .. math:: L = I - D^{-1/2} A D^{-1/2}, \quad D = \mathrm{diag}(\max(1, \text{in-degree}))

    ``adjacency``: ``[n, n]`` number of edges; a directed edge counts in both directions, self loops are kept.
    """
    either = np.maximum(adjacency, adjacency.T).astype(np.float64)
    scale = np.maximum(either.sum(-1), 1) ** -0.5
    laplacian: NDArray[np.float64] = np.eye(len(either)) - scale[:, None] * either * scale
    return laplacian


def laplacian_eigenvectors(adjacency: NDArray[np.float64 | np.bool_], k: int) -> NDArray[np.float64]:
    """Compute the eigenvectors of eigenvalues 1 to ``k`` in ascending order, without the first: ``[n, k]``.

    Signs, and the basis of a repeated eigenvalue, are arbitrary, but the same for the same graph on the same
    machine. Columns from n - 1 on are 0.
    """
    vectors = np.linalg.eigh(normalized_laplacian(adjacency)).eigenvectors[:, 1 : k + 1]
    return np.pad(vectors, ((0, 0), (0, k - vectors.shape[1])))
