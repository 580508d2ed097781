// The onboard runtime without the graphs: from tracks and a map to the graphs' inputs, and from their outputs
// to futures. `onnx.hpp` runs the graphs with ONNX Runtime.
#pragma once

#include "trajpred_onboard/baselines.hpp"
#include "trajpred_onboard/bundle.hpp"
#include "trajpred_onboard/detections.hpp"
#include "trajpred_onboard/drive_lines.hpp"
#include "trajpred_onboard/encoder.hpp"
#include "trajpred_onboard/errors.hpp"
#include "trajpred_onboard/forecaster.hpp"
#include "trajpred_onboard/lane_map.hpp"
#include "trajpred_onboard/stream.hpp"
#include "trajpred_onboard/version.hpp"
