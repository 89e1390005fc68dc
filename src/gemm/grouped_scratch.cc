#include "culet/grouped_scratch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/float_types.h"
#include "culet/device_memory.h"
#include "culet/grouped.h"
#include "culet/timing.h"
#include "gemm/cost_model.h"
#include "gemm/runtime.h"
#include "gemm/stop.h"

namespace culet {
namespace {

constexpr int kBlock = 128;
// Operands repeat so many values, a prime: no two rows of usual lengths are equal.
constexpr std::size_t kPattern = 131071;
constexpr double kSustainedUs = 4000;  // as TimedLaunch
constexpr int kMostCheckedGroups = 24;
// Few tokens reach few experts: more routings leave none of their weights in a cache.
constexpr int kFewTokens = 64, kRoutingsOfFew = 6, kRoutings = 2;

std::size_t Blocks(std::int64_t count) noexcept {
  return static_cast<std::size_t>((count + kBlock - 1) / kBlock);
}

float ValueOf(DataType type, const std::byte* bytes) noexcept {
  switch (type) {
    case DataType::kFloat8_e4m3:
      return Float8E4m3ToFloat(static_cast<std::uint8_t>(*bytes));
    case DataType::kFloat32: {
      float value;
      std::memcpy(&value, bytes, sizeof value);
      return value;
    }
    default: {
      std::uint16_t bits;
      std::memcpy(&bits, bytes, sizeof bits);
      return type == DataType::kFloat16 ? Float16ToFloat(bits) : Bfloat16ToFloat(bits);
    }
  }
}

void Append(DataType type, float value, std::vector<std::byte>& bytes) {
  const auto append = [&](const auto& element) {
    const auto* const from = reinterpret_cast<const std::byte*>(&element);
    bytes.insert(bytes.end(), from, from + sizeof element);
  };
  switch (type) {
    case DataType::kFloat8_e4m3:
      return append(FloatToFloat8E4m3(value));
    case DataType::kFloat32:
      return append(value);
    case DataType::kFloat16:
      return append(FloatToFloat16(value));
    default:
      return append(FloatToBfloat16(value));
  }
}

// An operand whose elements repeat a pattern that the host knows.
class Operand {
 public:
  Status Make(DeviceMemory& memory, DataType type, std::int64_t elements, double mean,
              double spread, unsigned seed) {
    type_ = type;
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(mean, spread);
    for (std::size_t i = 0; i < kPattern; ++i) {
      Append(type, static_cast<float>(normal(random)), pattern_);
    }
    const auto bytes = static_cast<std::size_t>(elements) * SizeOf(type);
    auto buffer = DeviceBuffer::Create(memory, std::max<std::size_t>(bytes, 1));
    if (!buffer) return buffer.status();
    buffer_ = *std::move(buffer);
    std::size_t filled = std::min(bytes, pattern_.size());
    CULET_RETURN_IF_ERROR(memory.Upload(buffer_.get(), pattern_.data(), filled, nullptr));
    while (filled < bytes) {  // whole patterns so far
      const std::size_t more = std::min(filled, bytes - filled);
      CULET_RETURN_IF_ERROR(memory.Copy(buffer_.get() + filled, buffer_.get(), more, nullptr));
      filled += more;
    }
    return memory.Synchronize(nullptr);
  }
  template <class T = void>
  const T* data() const {
    return FromDevicePtr<const T>(buffer_.get());
  }
  double At(std::int64_t element) const {
    return ValueOf(type_, &pattern_[static_cast<std::size_t>(element) % kPattern * SizeOf(type_)]);
  }

 private:
  DataType type_ = DataType::kNull;
  std::vector<std::byte> pattern_;
  DeviceBuffer buffer_;
};

struct Routed {
  GroupedRouting kind = GroupedRouting::kEven;
  std::vector<std::int32_t> starts;  // (groups + 1)
  DeviceBuffer on_device;

  std::int32_t rows() const { return starts.back(); }
};

// Rows of each group; at least one of all.
std::vector<int> CountsOf(const GemmDesc& desc, GroupedRouting kind, unsigned seed) {
  const int groups = desc.num, experts = std::max(desc.group_experts, groups);
  const int active = std::clamp(desc.group_active, 1, experts);
  std::mt19937 random(seed);
  std::vector<double> weight(static_cast<std::size_t>(experts), 1);
  for (std::size_t e = 0; e < weight.size() && kind == GroupedRouting::kZipf; ++e) {
    weight[e] = 1 / static_cast<double>(e + 1);
  }
  std::vector<int> counts(static_cast<std::size_t>(groups));
  int routed = 0;
  // The largest keys, of exponential variates over their weights, are a choice without repetition.
  std::vector<std::pair<double, int>> keys(weight.size());
  std::exponential_distribution<double> exponential;
  for (int token = 0; token < desc.m; ++token) {
    for (std::size_t e = 0; e < keys.size(); ++e) {
      keys[e] = {exponential(random) / weight[e], static_cast<int>(e)};
    }
    std::ranges::nth_element(keys, keys.begin() + (active - 1));
    for (int i = 0; i < active; ++i) {
      const int e = keys[static_cast<std::size_t>(i)].second;
      if (e < groups) ++counts[static_cast<std::size_t>(e)], ++routed;
    }
  }
  if (routed == 0) counts[seed % counts.size()] = routed = 1;
  if (kind != GroupedRouting::kHalf) return counts;
  std::vector<int> half(counts.size());
  half[0] = groups > 1 ? (routed + 1) / 2 : routed;
  int rest = routed - half[0];
  for (std::size_t e = 1; e < half.size(); ++e) {
    half[e] = rest / static_cast<int>(half.size() - e);
    rest -= half[e];
  }
  return half;
}

}  // namespace

struct GroupedScratch::Impl {
  Impl(const DeviceInfo& device_info, const GemmDesc& problem)
      : device(device_info), desc(problem), runtime(GetRuntime(device_info)) {}

  using Key = std::tuple<const Kernel*, int, bool, int, GroupedRouting>;
  struct Recorded {
    std::unique_ptr<Replay> graph;
    int launches = 1;
  };

  DeviceInfo device;
  GemmDesc desc;
  Runtime& runtime;
  GroupedArgs args;  // but for starts
  Operand a, b, u, v, bias;
  std::vector<std::int32_t> index;
  DeviceBuffer index_on_device, d;
  std::size_t d_bytes = 0;
  std::vector<GroupedRouting> kinds;
  std::vector<Routed> routings;
  std::map<Key, Recorded> recorded;

  bool gated() const { return IsGated(desc.epilogue); }
  bool scaled() const { return desc.a.quant.type != QuantType::kNone; }

  Status Launch(Gemm& gemm, const LaunchSpec* spec, const Routed& routing, cudaStream_t stream) {
    GroupedArgs with = args;
    with.starts = FromDevicePtr<const std::int32_t>(routing.on_device.get());
    return spec != nullptr ? GroupedGemm(gemm, with, *spec, stream)
                           : GroupedGemm(gemm, with, stream);
  }

  // The sum of column `column` of a group's matrix, and the sum of magnitudes.
  std::pair<double, double> SumOf(int group, std::int64_t row, std::int64_t column) const {
    const std::int64_t k = desc.k, blocks = static_cast<std::int64_t>(Blocks(k));
    const std::int64_t matrix_row = std::int64_t{group} * desc.n + column;
    double sum = 0, magnitude = 0;
    for (std::int64_t i = 0; i < k; ++i) {
      double product = a.At(row * k + i) * b.At(matrix_row * k + i);
      if (scaled()) {
        const std::int64_t scale_row =
            group * static_cast<std::int64_t>(Blocks(desc.n)) + column / kBlock;
        const std::int64_t block = i / kBlock;
        const std::int64_t of_a =
            args.u_block == 1 ? row * args.u_row + block : block * args.u_block + row;
        product *= u.At(of_a) * v.At(scale_row * blocks + block);
      }
      sum += product;
      magnitude += std::abs(product);
    }
    if (args.bias != nullptr) sum += bias.At(matrix_row);
    return {sum, magnitude};
  }

  // The element, and how far a result may be from it.
  std::pair<double, double> Expected(int group, std::int32_t place, int column) const {
    const std::int64_t row = index.empty() ? place : index[static_cast<std::size_t>(place)];
    // Of FP8 the tensor core keeps 14 bits; D is rounded to BF16 or better.
    const double of_sum = scaled() ? 0x1p-11 : 0x1p-14, of_result = 0x1p-7;
    const auto [first, first_size] = SumOf(group, row, column);
    if (!gated()) return {first, of_sum * first_size + of_result * std::abs(first)};
    const auto [up, up_size] = SumOf(group, row, column + args.n);
    const double silu = first / (1 + std::exp(-first)), result = silu * up;
    return {result, of_sum * (1.2 * first_size * std::abs(up) + up_size * std::abs(silu)) +
                        of_result * std::abs(result)};
  }

  Status Compare(const Routed& routing, std::mt19937& random) {
    const std::size_t size = SizeOf(args.d_type);
    std::vector<std::tuple<int, std::int32_t, int>> checked;
    std::vector<std::size_t> offsets;
    std::vector<int> reached;
    for (int g = 0; g < desc.num; ++g) {
      const auto at = static_cast<std::size_t>(g);
      if (routing.starts[at] < routing.starts[at + 1]) reached.push_back(g);
    }
    std::ranges::shuffle(reached, random);
    if (reached.size() > kMostCheckedGroups) reached.resize(kMostCheckedGroups);
    const auto add = [&](int group, std::int32_t row) {
      for (const int column :
           {0, args.n / 2, args.n - 1, static_cast<int>(random() % unsigned(args.n))}) {
        checked.emplace_back(group, row, column);
        offsets.push_back((static_cast<std::size_t>(row) * static_cast<std::size_t>(args.n) +
                           static_cast<std::size_t>(column)) *
                          size);
      }
    };
    for (const int g : reached) {
      const auto at = static_cast<std::size_t>(g);
      const std::int32_t begin = routing.starts[at], end = routing.starts[at + 1];
      add(g, begin);
      if (end - begin > 1) add(g, end - 1);
      if (end - begin > 2) {
        add(g, begin + static_cast<std::int32_t>(random() % unsigned(end - begin)));
      }
    }
    if (routing.rows() < args.rows) add(-1, routing.rows());
    std::vector<std::byte> found(offsets.size() * size);
    CULET_RETURN_IF_ERROR(
        runtime.Gather(FromDevicePtr<const void>(d.get()), offsets, size, found.data()));
    for (std::size_t i = 0; i < checked.size(); ++i) {
      const auto [group, row, column] = checked[i];
      const double value = ValueOf(args.d_type, &found[i * size]);
      if (group < 0) {
        if (std::isnan(value)) continue;
        return Status(StatusCode::kWrongResult,
                      fmt::format("row {} of no group was written ({} routing)", row,
                                  ToString(routing.kind)));
      }
      const auto [expected, bound] = Expected(group, row, column);
      if (std::abs(value - expected) <= bound) continue;  // never of NaN
      return Status(
          StatusCode::kWrongResult,
          fmt::format("row {} of group {}, column {} is {} instead of {:.6g} +- {:.2g} "
                      "({} routing)",
                      row, group, column, value, expected, bound, ToString(routing.kind)));
    }
    return {};
  }

  Result<double> SampleKindUs(Gemm& gemm, const LaunchSpec* spec, GroupedRouting kind,
                              bool sustained, const std::function<bool()>& give_up) {
    std::vector<const Routed*> of_kind;
    for (const Routed& routing : routings) {
      if (routing.kind == kind) of_kind.push_back(&routing);
    }
    const int count = static_cast<int>(of_kind.size());
    if (device.arch == 0) {
      double total = 0;
      for (const Routed* routing : of_kind) {
        const auto us =
            runtime.TimeUs([&] { return Launch(gemm, spec, *routing, nullptr); }, give_up);
        if (!us) return us.status();
        total += *us;
      }
      return total / count;
    }
    const Key key = spec != nullptr
                        ? Key{spec->kernel, spec->splits, spec->serial, spec->variant, kind}
                        : Key{nullptr, 0, false, 0, kind};
    Recorded& graph = recorded[key];
    if (graph.graph == nullptr) {
      const double limit_us = RooflineUs(desc, gemm.rates(desc.a.type));
      graph.launches = (LaunchesPerSample(device, count, limit_us) + count - 1) / count * count;
      auto made = runtime.Record([&](cudaStream_t stream) -> Status {
        for (int i = 0; i < graph.launches; ++i) {
          CULET_RETURN_IF_ERROR(
              Launch(gemm, spec, *of_kind[static_cast<std::size_t>(i % count)], stream));
        }
        return {};
      });
      if (!made) return made.status();
      graph.graph = *std::move(made);
    }
    int repeats = 1;
    if (sustained) {
      const auto once = graph.graph->TimeUs();
      if (!once) return once.status();
      repeats = std::max(1, static_cast<int>(std::ceil(kSustainedUs / *once)));
    }
    const auto total = graph.graph->TimeUs(repeats);
    if (!total) return total.status();
    return *total / graph.launches;
  }
};

GroupedScratch::GroupedScratch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GroupedScratch::~GroupedScratch() = default;
GroupedScratch::GroupedScratch(GroupedScratch&&) noexcept = default;
GroupedScratch& GroupedScratch::operator=(GroupedScratch&&) noexcept = default;

Result<GroupedScratch> GroupedScratch::Create(const DeviceInfo& device, const GemmDesc& desc,
                                              const GroupedScratchOptions& options) {
  auto impl = std::make_unique<Impl>(device, desc);
  DeviceMemory& memory = impl->runtime.memory();
  Stop stop(options.stop);
  GroupedArgs& args = impl->args;
  args.groups = desc.num;
  args.n = ColumnsOfD(desc);
  args.k = desc.k;
  args.type = desc.a.type;
  args.d_type = desc.d.type;
  args.epilogue = desc.epilogue;
  args.bias_type = desc.type_bias != DataType::kNull ? desc.type_bias : args.bias_type;
  args.expected_tokens = desc.m;
  args.expected_active = desc.group_active;
  args.expected_experts = desc.group_experts;
  args.pdl = desc.pdl;
  args.sm_budget = desc.sm_budget;
  const bool gathers = desc.a.striding == Striding::kIndexed;
  const std::int64_t rows = std::int64_t{desc.m} * std::min(desc.group_active, desc.num);
  constexpr std::int64_t kMostRows = 1 << 24;
  if (!IsGrouped(desc) || rows < 1 || rows > kMostRows) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("'{}' is not the key of a grouped product of 1 to 2^24 rows; take "
                              "desc from DescribeGrouped",
                              culet::ToString(desc)));
  }
  args.rows = static_cast<int>(rows);
  args.a_rows = gathers ? desc.m : args.rows;
  const std::int64_t blocks = static_cast<std::int64_t>(Blocks(desc.k));
  args.u_row = blocks, args.u_block = 1;
  if (desc.a.scale_order == Order::kColMajor) args.u_row = 1, args.u_block = args.a_rows;

  const auto bytes = static_cast<double>(desc.num) * desc.n * desc.k * BitsOf(desc.b.type) / 8;
  if (device.memory_bytes > 0 && bytes > 0.5 * static_cast<double>(device.memory_bytes)) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("the weights of {} take {:.3g} GB, more than half of the device's "
                              "memory; measure fewer experts",
                              culet::ToString(desc), 1e-9 * bytes));
  }
  // Sums with a standard deviation of 1, so that no type of D overflows. Codes use their range; A's
  // scales make up for it.
  const bool scaled = impl->scaled();
  const double of_a = scaled ? 8 : 1 / std::sqrt(static_cast<double>(desc.k));
  unsigned seed = options.seed;
  const auto operand = [&](Operand& made, DataType type, std::int64_t elements, double mean,
                           double spread) -> Status {
    if (stop()) return stop.status();
    return made.Make(memory, type, elements, mean, spread, 7919u * seed++);
  };
  CULET_RETURN_IF_ERROR(operand(impl->a, args.type, std::int64_t{args.a_rows} * desc.k, 0, of_a));
  CULET_RETURN_IF_ERROR(
      operand(impl->b, args.type, std::int64_t{desc.num} * desc.n * desc.k, 0, scaled ? 8 : 1));
  args.A = impl->a.data();
  args.B = impl->b.data();
  if (scaled) {
    const double mean = 1 / (64 * std::sqrt(static_cast<double>(desc.k)));
    CULET_RETURN_IF_ERROR(
        operand(impl->u, DataType::kFloat32, args.a_rows * blocks, mean, mean / 8));
    CULET_RETURN_IF_ERROR(operand(
        impl->v, DataType::kFloat32,
        std::int64_t{desc.num} * static_cast<std::int64_t>(Blocks(desc.n)) * blocks, 1, 0.125));
    args.U = impl->u.data<float>();
    args.V = impl->v.data<float>();
  }
  if (desc.type_bias != DataType::kNull) {
    CULET_RETURN_IF_ERROR(
        operand(impl->bias, args.bias_type, std::int64_t{desc.num} * desc.n, 0, 1));
    args.bias = impl->bias.data();
  }
  std::mt19937 random(seed);
  if (gathers) {
    for (int i = 0; i < args.rows; ++i) {
      impl->index.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(desc.m)));
    }
    auto buffer = DeviceBuffer::Create(memory, impl->index.size() * sizeof(std::int32_t));
    if (!buffer) return buffer.status();
    impl->index_on_device = *std::move(buffer);
    CULET_RETURN_IF_ERROR(memory.Upload(impl->index_on_device.get(), impl->index.data(),
                                        impl->index.size() * sizeof(std::int32_t), nullptr));
    args.index = FromDevicePtr<const std::int32_t>(impl->index_on_device.get());
  }
  impl->d_bytes = static_cast<std::size_t>(rows * args.n) * SizeOf(args.d_type);
  auto d = DeviceBuffer::Create(memory, impl->d_bytes);
  if (!d) return d.status();
  impl->d = *std::move(d);
  args.D = FromDevicePtr<void>(impl->d.get());
  if (options.routing) {
    impl->kinds = {*options.routing};
  } else {
    impl->kinds.assign(std::begin(kGroupedRoutings), std::end(kGroupedRoutings));
  }
  for (const GroupedRouting kind : impl->kinds) {
    const int count = desc.m <= kFewTokens ? kRoutingsOfFew : kRoutings;
    for (int i = 0; i < count; ++i) {
      if (stop()) return stop.status();
      Routed routed{kind, {0}, {}};
      const unsigned routing_seed =
          17u * static_cast<unsigned>(desc.m) + static_cast<unsigned>(i) + 1000u * options.seed;
      for (const int rows_of_group : CountsOf(desc, kind, routing_seed)) {
        routed.starts.push_back(routed.starts.back() + rows_of_group);
      }
      const std::size_t size = routed.starts.size() * sizeof(std::int32_t);
      auto buffer = DeviceBuffer::Create(memory, size);
      if (!buffer) return buffer.status();
      routed.on_device = *std::move(buffer);
      CULET_RETURN_IF_ERROR(
          memory.Upload(routed.on_device.get(), routed.starts.data(), size, nullptr));
      impl->routings.push_back(std::move(routed));
    }
  }
  CULET_RETURN_IF_ERROR(memory.Synchronize(nullptr));
  return GroupedScratch(std::move(impl));
}

GroupedRows GroupedScratch::rows() const noexcept {
  GroupedRows mean{0, 0};
  for (const Routed& routing : impl_->routings) {
    mean.rows += routing.rows();
    for (std::size_t g = 1; g < routing.starts.size(); ++g) {
      mean.reached += routing.starts[g] > routing.starts[g - 1] ? 1 : 0;
    }
  }
  const auto count = static_cast<double>(impl_->routings.size());
  return {mean.rows / count, mean.reached / count};
}

Status GroupedScratch::Check(Gemm& gemm, const LaunchSpec* spec) {
  DeviceMemory& memory = impl_->runtime.memory();
  const std::vector<std::byte> poison(std::min<std::size_t>(impl_->d_bytes, 1 << 20),
                                      std::byte{0xff});
  std::mt19937 random(1);
  const Routed* before = nullptr;
  for (const Routed& routing : impl_->routings) {
    if (before != nullptr && before->kind == routing.kind) continue;
    before = &routing;
    for (std::size_t at = 0; at < impl_->d_bytes; at += poison.size()) {
      CULET_RETURN_IF_ERROR(memory.Upload(impl_->d.get() + at, poison.data(),
                                          std::min(poison.size(), impl_->d_bytes - at), nullptr));
    }
    CULET_RETURN_IF_ERROR(impl_->Launch(gemm, spec, routing, nullptr));
    CULET_RETURN_IF_ERROR(impl_->runtime.Synchronize());
    CULET_RETURN_IF_ERROR(impl_->Compare(routing, random));
  }
  return {};
}

Result<double> GroupedScratch::SampleUs(Gemm& gemm, const LaunchSpec* spec, bool sustained,
                                        const std::function<bool()>& give_up) {
  double logs = 0, weights = 0;
  for (const GroupedRouting kind : impl_->kinds) {
    const auto us = impl_->SampleKindUs(gemm, spec, kind, sustained, give_up);
    if (!us) return us.status();
    const double weight = kind == GroupedRouting::kEven ? 2 : 1;
    logs += weight * std::log(std::max(*us, 1e-3));
    weights += weight;
  }
  return std::exp(logs / weights);
}

}  // namespace culet
