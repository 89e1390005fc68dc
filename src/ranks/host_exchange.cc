// MakeHostExchange: values that lie in the host's memory go through the communicator as they are.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "culet/ranks.h"

namespace culet {
namespace {

// Larger for larger values, for NaN largest, for a lower index among equals.
std::uint64_t KeyOf(float value, std::int64_t index) {
  constexpr std::uint32_t kSign = 0x80000000u, kNaN = 0xFFFFFFFFu;
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);  // -0 equals 0
  const std::uint32_t order = std::isnan(value) ? kNaN : (bits & kSign) != 0 ? ~bits : bits | kSign;
  return std::uint64_t{order} << 32 | ~static_cast<std::uint32_t>(index);
}
std::int32_t IndexOf(std::uint64_t key) {
  const bool nan = static_cast<std::uint32_t>(key >> 32) == 0xFFFFFFFFu;
  return nan ? -1 : static_cast<std::int32_t>(~static_cast<std::uint32_t>(key));
}

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

  Status AllArgMax(DevicePtr x, DevicePtr local, DevicePtr all, std::int64_t rows,
                   const RankParts& parts, DevicePtr, ExchangeStream) override {
    const auto count = static_cast<std::size_t>(rows),
               ranks = static_cast<std::size_t>(parts.ranks());
    std::vector<std::uint64_t> own(count), keys(count * ranks);
    for (std::size_t row = 0; row < count; ++row) {
      const std::int32_t at = FromDevicePtr<const std::int32_t>(local)[row];
      const auto of_row = static_cast<std::size_t>(parts.size_of(parts.rank));
      const float value =
          FromDevicePtr<const float>(x)[row * of_row + static_cast<std::size_t>(at)];
      own[row] = KeyOf(value, parts.first() + at);
    }
    const std::vector<std::size_t> bytes(ranks, count * sizeof(std::uint64_t));
    CULET_RETURN_IF_ERROR(ranks_.AllGather(own.data(), bytes, keys.data()));
    for (std::size_t row = 0; row < count; ++row) {
      for (std::size_t r = 0; r < ranks; ++r) own[row] = std::max(own[row], keys[r * count + row]);
      FromDevicePtr<std::int32_t>(all)[row] = IndexOf(own[row]);
    }
    return {};
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
