// MakeHostExchange: values that lie in the host's memory go through the communicator as they are.
#include <cstring>
#include <vector>

#include "culet/ranks.h"

namespace culet {
namespace {

class HostExchange final : public RankExchange {
 public:
  explicit HostExchange(Communicator& ranks) : ranks_(ranks) {}

  Status AllReduce(DevicePtr x, DevicePtr sum, std::size_t count, ExchangeStream) override {
    return ranks_.AllReduce({FromDevicePtr<const float>(x), count}, FromDevicePtr<float>(sum));
  }

  // The ranks' matrices lie one behind the other in the workspace, then row by row side by side.
  Status AllGather(DevicePtr x, DevicePtr all, std::int64_t rows, const RankParts& parts,
                   DevicePtr workspace, ExchangeStream) override {
    std::vector<std::size_t> bytes;
    for (int r = 0; r < parts.ranks(); ++r) {
      bytes.push_back(static_cast<std::size_t>(rows * parts.size_of(r)) * sizeof(float));
    }
    float* const gathered = FromDevicePtr<float>(rows == 1 ? all : workspace);
    CULET_RETURN_IF_ERROR(ranks_.AllGather(FromDevicePtr<const void>(x), bytes, gathered));
    if (rows == 1) return {};
    const float* from = gathered;
    for (int r = 0; r < parts.ranks(); ++r) {
      float* to = FromDevicePtr<float>(all) + parts.bounds[static_cast<std::size_t>(r)];
      for (std::int64_t row = 0; row < rows; ++row) {
        std::memcpy(to, from, static_cast<std::size_t>(parts.size_of(r)) * sizeof(float));
        from += parts.size_of(r);
        to += parts.all();
      }
    }
    return {};
  }

  std::size_t GatherWorkspace(std::int64_t rows, const RankParts& parts) const override {
    return rows == 1 ? 0 : static_cast<std::size_t>(rows * parts.all()) * sizeof(float);
  }
  std::string name() const override { return "shared_memory"; }

 private:
  Communicator& ranks_;
};

}  // namespace

std::unique_ptr<RankExchange> MakeHostExchange(Communicator& ranks) {
  return std::make_unique<HostExchange>(ranks);
}

}  // namespace culet
