// Eigenvectors of a graph's Laplacian, as positional encoding of its nodes: trajpred/data/geometry.py.
#pragma once

#include <cstddef>

#include "trajpred_onboard/arrays.hpp"

namespace trajpred::onboard {

// Returns whether the library was built with Eigen, which this needs.
bool has_laplacian();

// Computes the eigenvectors of eigenvalues 1 to `k` in ascending order, without the first: [nodes, k].
//
// `topology`: [nodes, nodes], 0 where there is no edge. Signs and the basis of a repeated eigenvalue are
// arbitrary and differ from NumPy's. Columns from nodes - 1 on are 0.
Floats laplacian_eigenvectors(const Integers& topology, std::size_t nodes, std::size_t k);

}  // namespace trajpred::onboard
