// Runs the graphs of a bundle with ONNX Runtime.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trajpred_onboard/encoder.hpp"
#include "trajpred_onboard/forecaster.hpp"

namespace trajpred::onboard {

// Execution providers by ONNX Runtime's names, the preferred one first; empty for the CPU only. Operations
// that a provider does not support run on the CPU.
using Providers = std::vector<std::string>;

// Loads the graphs of a bundle. `threads`: ONNX Runtime's threads on the CPU; 0 for one per core.
//
// Waiting threads sleep instead of spinning: a vehicle's processor is shared.
// Throws DataError if a graph is damaged or cannot be loaded, or this ONNX Runtime lacks a provider.
std::unique_ptr<Graphs> open_graphs(const Bundle& bundle, int threads = 0, const Providers& providers = {});

// Opens the folder of a bundle; every thread needs its own forecaster. Throws DataError.
// open_forecaster("bundle", 1, {"TensorrtExecutionProvider", "CUDAExecutionProvider"}) computes on a GPU.
std::shared_ptr<Forecaster> open_forecaster(const std::string& bundle, int threads = 0,
                                            const Providers& providers = {});

// Opens a bundle with or without a decoder for encoding.
std::shared_ptr<Encoder> open_encoder(const std::string& bundle, int threads = 0,
                                      const Providers& providers = {});

}  // namespace trajpred::onboard
