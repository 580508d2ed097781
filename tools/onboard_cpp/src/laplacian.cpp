#include "trajpred_onboard/laplacian.hpp"

#include "trajpred_onboard/errors.hpp"

#ifdef TRAJPRED_HAS_EIGEN
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#endif

namespace trajpred::onboard {

#ifdef TRAJPRED_HAS_EIGEN

namespace {

using Index = Eigen::Index;

// Builds the symmetric Laplacian of a graph, in which a directed edge counts in both directions.
Eigen::MatrixXd normalized_laplacian(const Integers& topology, std::size_t nodes) {
  const auto size = static_cast<Index>(nodes);
  Eigen::MatrixXd either(size, size);
  for (Index row = 0; row < size; ++row) {
    for (Index column = 0; column < size; ++column) {
      const bool there = topology[static_cast<std::size_t>(row * size + column)] > 0;
      const bool back = topology[static_cast<std::size_t>(column * size + row)] > 0;
      either(row, column) = there || back ? 1.0 : 0.0;
    }
  }
  const Eigen::VectorXd scale = either.rowwise().sum().cwiseMax(1.0).cwiseSqrt().cwiseInverse();
  const Eigen::MatrixXd scaled = scale.asDiagonal() * either * scale.asDiagonal();
  return Eigen::MatrixXd::Identity(size, size) - scaled;
}

}  // namespace

bool has_laplacian() { return true; }

Floats laplacian_eigenvectors(const Integers& topology, std::size_t nodes, std::size_t k) {
  Floats vectors(nodes * k, 0.0f);
  if (nodes < 2) return vectors;
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(normalized_laplacian(topology, nodes));
  const std::size_t columns = std::min(k, nodes - 1);
  for (std::size_t row = 0; row < nodes; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const auto from = static_cast<Index>(column + 1);
      const double value = solver.eigenvectors()(static_cast<Index>(row), from);
      vectors[row * k + column] = static_cast<float>(value);
    }
  }
  return vectors;
}

#else

bool has_laplacian() { return false; }

Floats laplacian_eigenvectors(const Integers&, std::size_t, std::size_t) {
  throw DataError("needs Eigen: install it and build the library again", "lane_eigenvectors");
}

#endif

}  // namespace trajpred::onboard
