#include "base/time_alone.h"

#include <algorithm>
#include <chrono>

namespace culet {
namespace {

// A day; what takes longer is not sampled twice with patience.
constexpr double kMostPatienceS = 86400;

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Result<double> TimeAloneUs(ThreadPool& pool, const std::function<Status()>& run,
                           const std::function<bool()>& give_up,
                           const std::function<double()>& clock_s) {
  const auto now_s = [&] { return clock_s ? clock_s() : SteadySeconds(); };
  MeasuringAlone::Options options;
  options.give_up = give_up;
  for (int sample = 0; sample < 2; ++sample) {
    MeasuringAlone alone(pool, options);
    if (!alone.begun()) {
      return Status(StatusCode::kFailedPrecondition,
                    "a product of another thread of the process did not end while a measurement "
                    "waited for it; measure while no other thread runs products");
    }
    const double start_s = now_s();
    CULET_RETURN_IF_ERROR(run());
    const double taken_s = now_s() - start_s;
    if (alone.End()) return 1e6 * taken_s;
    options.patience = std::chrono::milliseconds(
        static_cast<std::int64_t>(4e3 * std::clamp(taken_s, 0.0, kMostPatienceS)));
  }
  return Status(StatusCode::kFailedPrecondition,
                "another thread of the process ran a product during the measurement, after it had "
                "waited four times as long as that takes; measure while no other thread runs "
                "products");
}

}  // namespace culet
