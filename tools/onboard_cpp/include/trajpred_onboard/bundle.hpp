// Bundles on disk: their description and their files: trajpred/onboard/bundle.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trajpred_onboard/arrays.hpp"
#include "trajpred_onboard/config.hpp"

namespace trajpred::onboard {

// `format` and `version` in `bundle.json`; other values are rejected.
inline constexpr const char* BUNDLE_FORMAT = "trajpred-bundle";
inline constexpr std::int64_t BUNDLE_VERSION = 2;

// An input or output of a graph, as in `INTERFACE.md`.
struct Port {
  std::string name;
  // float32, int64 or bool.
  std::string dtype;
  // Numbers, or names of sizes that differ between calls.
  std::vector<std::string> shape;
};

// Inputs and outputs of a graph, in order.
struct Signature {
  std::vector<Port> inputs;
  std::vector<Port> outputs;
};

// Fixed numbers of agents and of lanes.
struct Sizes {
  std::size_t agents;
  std::size_t lanes;
};

// An opened bundle: a folder written by `trajpred export`.
class Bundle {
 public:
  // Throws DataError if a file is missing, damaged or invalid.
  explicit Bundle(const std::string& path);

  const std::string& path() const { return path_; }
  const std::string& name() const { return name_; }
  const std::string& precision() const { return precision_; }
  // Licence of the weights; empty unless they ship with trajpred.
  const std::string& licence() const { return licence_; }
  // Observed steps T, channels per token D.
  std::size_t history() const { return history_; }
  std::size_t dim() const { return dim_; }
  // Future steps F, modes K; 0 without a decoder.
  std::size_t horizon() const { return horizon_; }
  std::size_t modes() const { return modes_; }
  double step_s() const { return step_s_; }
  const FeatureConfig& features() const { return features_; }
  // Eigenvectors of the lane topology that the graphs take; 0 for none.
  std::size_t eigenvectors() const { return eigenvectors_; }
  // Nothing for any number.
  const std::optional<Sizes>& sizes() const { return sizes_; }
  // By graph; a bundle of only the encoder has no decoder.
  const std::map<std::string, Signature>& graphs() const { return graphs_; }

  // Reads a file of the bundle. Throws DataError if it is missing or its SHA-256 differs.
  std::string read(const std::string& name) const;

  // Compares a graph's file with what this runtime computes and with the sizes in `bundle.json`. Throws
  // DataError that names the file and the field at fault.
  void require_signature(const std::string& graph, const Signature& found) const;

 private:
  void parse(const std::string& manifest);
  void require_sizes(const std::string& file, const Port& found, const Port& expected) const;

  std::string path_;
  std::string name_;
  std::string precision_;
  std::string licence_;
  std::size_t history_ = 0;
  std::size_t dim_ = 0;
  std::size_t horizon_ = 0;
  std::size_t modes_ = 0;
  double step_s_ = 0.0;
  FeatureConfig features_;
  std::size_t eigenvectors_ = 0;
  std::optional<Sizes> sizes_;
  std::map<std::string, Signature> graphs_;
  std::map<std::string, std::string> sha256_;
};

}  // namespace trajpred::onboard
