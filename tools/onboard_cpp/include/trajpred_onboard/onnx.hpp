// Runs the graphs of a bundle with ONNX Runtime.
#pragma once

#include <memory>
#include <string>

#include "trajpred_onboard/encoder.hpp"
#include "trajpred_onboard/forecaster.hpp"

namespace trajpred::onboard {

// Loads the graphs of a bundle. `threads`: of ONNX Runtime; 0 for one per core.
//
// Waiting threads sleep instead of spinning: a vehicle's processor is shared.
// Throws DataError if a graph is damaged or cannot be loaded.
std::unique_ptr<Graphs> open_graphs(const Bundle& bundle, int threads = 0);

// Opens the folder of a bundle; every thread needs a forecaster of its own. Throws DataError.
std::shared_ptr<Forecaster> open_forecaster(const std::string& bundle, int threads = 0);

// The same for bundles with or without a decoder.
std::shared_ptr<Encoder> open_encoder(const std::string& bundle, int threads = 0);

}  // namespace trajpred::onboard
