// In place of trajpred_onboard::onnx where ONNX Runtime is missing: graphs that fail, so that all futures are
// those of the fallback.
#include <trajpred_onboard/onnx.hpp>

#include "trajpred_onboard/errors.hpp"

namespace trajpred::onboard {

namespace {

class FailingGraphs : public Graphs {
 public:
  explicit FailingGraphs(const Bundle& bundle) : signatures_(bundle.graphs()) {}

  const Signature& signature(const std::string& graph) const override { return signatures_.at(graph); }

  Arrays run(const std::string&, const Arrays&) override { throw DataError("no ONNX Runtime"); }

 private:
  std::map<std::string, Signature> signatures_;
};

}  // namespace

std::shared_ptr<Forecaster> open_forecaster(const std::string& bundle, int, const Providers&) {
  Bundle opened(bundle);
  auto graphs = std::make_unique<FailingGraphs>(opened);
  return std::make_shared<Forecaster>(std::move(opened), std::move(graphs));
}

}  // namespace trajpred::onboard
