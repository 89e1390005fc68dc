// TuneExchange: times the ways of a sum on the ranks' own GPUs.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "culet/ranks.h"

namespace culet {
namespace {

class Tuning {
 public:
  Tuning(Communicator& ranks, KernelDispatch& dispatch, RankExchange& exchange,
         std::int64_t most_bytes)
      : ranks_(ranks), dispatch_(dispatch), exchange_(exchange), most_(most_bytes) {}

  Result<ExchangeTuning> Run() {
    const auto before = exchange_.choice();
    Status able;
    if (!before) able = exchange_.SetChoice({});  // says why not
    CULET_RETURN_IF_ERROR(ranks_.Agree(able, "tunes sums"));
    wire_ = before->wire;
    auto values = DeviceBuffer::Create(dispatch_.memory(), Floats(most_) * sizeof(float));
    const Status ready = values ? Clear(values->get()) : values.status();
    CULET_RETURN_IF_ERROR(ranks_.Agree(ready, "has memory"));
    x_ = values->get();
    ExchangeTuning tuning;
    Status status;
    for (std::int64_t bytes = kLeast; bytes <= most_ && status.ok(); bytes *= 2) {
      tuning.times.push_back({.bytes = bytes});
      status = TimeAll(tuning.times.back());
    }
    // The times of all ranks went into each, so that all choose alike.
    if (status.ok()) tuning.choice = ChooseExchange(tuning.times, wire_);
    static_cast<void>(exchange_.SetChoice(status.ok() ? tuning.choice : *before));
    CULET_RETURN_IF_ERROR(status);
    return tuning;
  }

 private:
  static constexpr std::int64_t kLeast = std::int64_t{64} << 10;
  // Room for a push is limited; where it ends a push is several.
  static constexpr std::int64_t kMany = std::int64_t{1} << 40;

  std::size_t Floats(std::int64_t bytes) const {
    return static_cast<std::size_t>(bytes) / SizeOf(wire_);
  }
  Status Clear(DevicePtr at) const {
    const std::vector<float> zeros(Floats(most_));
    CULET_RETURN_IF_ERROR(
        dispatch_.memory().Upload(at, zeros.data(), zeros.size() * sizeof(float), nullptr));
    return dispatch_.memory().Synchronize(nullptr);
  }

  Status TimeAll(ExchangeTimes& times) {
    const auto time = [&](std::int64_t push, std::int64_t two_shots, double& to) {
      CULET_RETURN_IF_ERROR(exchange_.SetChoice({wire_, push, two_shots, true}));
      const auto took = Time(times.bytes);
      if (took) to = *took;
      return took.status();
    };
    // A push that is several is slower than anything else.
    CULET_RETURN_IF_ERROR(exchange_.SetChoice({wire_, kMany, 0, true}));
    if (times.bytes <= exchange_.choice()->push_bytes) {
      CULET_RETURN_IF_ERROR(time(kMany, 0, times.push));
    }
    CULET_RETURN_IF_ERROR(time(0, kMany, times.two_shots));
    return exchange_.has_other() ? time(0, 0, times.nccl) : Status();
  }

  // Microseconds of one sum, the median of replays, on the rank that came last.
  Result<double> Time(std::int64_t bytes) {
    const std::size_t count = Floats(bytes);
    cudaStream_t stream = nullptr;
    const bool records = dispatch_.records(stream);
    const int each = !records ? 4 : bytes <= (std::int64_t{1} << 20) ? 40 : 8;
    const auto launch = [&](cudaStream_t on) -> Status {
      for (int i = 0; i < each; ++i) {
        CULET_RETURN_IF_ERROR(exchange_.AllReduce(x_, x_, count, {on, i > 0}));
      }
      return {};
    };
    std::unique_ptr<RecordedLaunches> recorded;
    Status status;
    if (records) {
      auto made = dispatch_.record(launch);
      if (made) recorded = *std::move(made);
      status = made.status();
    }
    CULET_RETURN_IF_ERROR(ranks_.Agree(status, "has a recording"));
    constexpr int kReplays = 7, kWarm = 2;
    std::vector<double> times;
    for (int i = 0; i < kReplays + kWarm; ++i) {
      CULET_RETURN_IF_ERROR(ranks_.Barrier());
      const auto begin = std::chrono::steady_clock::now();
      status = recorded != nullptr ? recorded->Replay(stream) : launch(stream);
      exchange_.BeginWait();
      const Status waited = dispatch_.memory().Synchronize(stream);
      const Status ended = exchange_.EndWait();
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - begin;
      for (const Status& one : {status, ended, waited}) {
        if (one.ok()) continue;
        ranks_.Abort(one.message());
        return one;
      }
      // Who came first also waited for the others.
      std::vector<double> all(static_cast<std::size_t>(ranks_.size()));
      const std::vector<std::size_t> sizes(all.size(), sizeof(double));
      const double own = took.count() / each;
      CULET_RETURN_IF_ERROR(ranks_.AllGather(&own, sizes, all.data()));
      if (i >= kWarm) times.push_back(*std::ranges::min_element(all));
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

  Communicator& ranks_;
  KernelDispatch& dispatch_;
  RankExchange& exchange_;
  const std::int64_t most_;
  DataType wire_ = DataType::kFloat32;
  DevicePtr x_ = 0;
};

}  // namespace

Result<ExchangeTuning> TuneExchange(Communicator& ranks, KernelDispatch& dispatch,
                                    RankExchange& exchange, std::int64_t most_bytes) {
  return Tuning(ranks, dispatch, exchange, most_bytes).Run();
}

}  // namespace culet
