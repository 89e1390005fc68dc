#include "model/gguf_checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <set>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/float_types.h"
#include "base/thread_pool.h"
#include "culet/printable.h"
#include "model/gguf_config.h"
#include "model/gguf_unpack.h"

namespace culet {
namespace {

// Of the config.
constexpr std::string_view kReadByConfig[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                              "rope_factors_long.weight"};

constexpr std::string_view kBias = "_bias";  // behind the names of stacked tensors

bool IsVector(WeightRole role) noexcept {
  return role == WeightRole::kVector || role == WeightRole::kGammaLessOne;
}

DataType PlainTypeOf(const GgufTensor& tensor) noexcept {
  switch (static_cast<GgufType>(tensor.type->number)) {
    case GgufType::kF32:
      return DataType::kFloat32;
    case GgufType::kF16:
      return DataType::kFloat16;
    case GgufType::kBf16:
      return DataType::kBfloat16;
    default:
      return DataType::kNull;
  }
}

// A request for one expert's part of a stacked tensor, which GGUF files store as they do experts of
// their own: gate and up apart, rows as products take them.
WeightRequest OneExpert(const StackedRequest& request) {
  constexpr std::string_view kBoth = "gate_up_proj";
  WeightRequest one{.name = request.name,
                    .rows = request.rows,
                    .cols = request.cols,
                    .first = request.first,
                    .of = request.of,
                    .first_col = request.first_col,
                    .of_cols = request.of_cols};
  const bool bias = request.cols == 0;
  if (bias && one.name.ends_with(kBias)) one.name.resize(one.name.size() - kBias.size());
  if (one.name.ends_with(kBoth)) {
    const std::int64_t half = request.of / 2;
    const bool up = request.step == 2 ? request.first % 2 == 1 : request.first >= half;
    one.name.replace(one.name.size() - kBoth.size(), kBoth.size(), up ? "up_proj" : "gate_proj");
    one.first = request.step == 2 ? request.first / 2 : request.first - (up ? half : 0);
    one.of = half;
  }
  one.name.insert(one.name.rfind('.') + 1, fmt::format("{}.", request.number));
  one.name += bias ? ".bias" : ".weight";
  if (bias) {
    one.cols = one.rows;
    one.rows = 1;
    one.role = WeightRole::kVector;
  }
  return one;
}

}  // namespace

void GgufCheckpoint::Fail(StatusCode code, std::string message) {
  if (status_.ok()) status_ = Status(code, std::move(message));
}

DevicePtr GgufCheckpoint::Copied(const void* data, std::size_t bytes, WeightPart part) {
  const auto copy = memory().Copy(data, bytes, part);
  if (copy) return *copy;
  Fail(copy.status().code(), copy.status().message());
  return 0;
}

// Vectors are numbers; an embedding may be the head, too. Codes of E2M1 are those of products.
bool GgufCheckpoint::TakesCodes(const GgufTensor& tensor, WeightRole role) const noexcept {
  if (IsVector(role) || !HasCodes(tensor)) return false;
  const bool apart = config_.shard.ranks > 1 && !memory().memory().reads_host_memory();
  if (role == WeightRole::kPlain && apart) return false;  // GPUs pick such rows of a whole table
  return !tensor.is(GgufType::kMxfp4) || role == WeightRole::kProduct || role == WeightRole::kHead;
}

DataType GgufCheckpoint::TypeOf(const std::string& name, WeightRole role) const {
  const GgufTensor* tensor = file_.Find(GgufPlaceOf(architecture_, name).name);
  if (tensor == nullptr) return DataType::kNull;
  const DataType plain = PlainTypeOf(*tensor);
  if (plain != DataType::kNull || !HasCodes(*tensor)) return plain;
  return TakesCodes(*tensor, role) ? CodesOf(*tensor) : DataType::kFloat32;
}

Weight GgufCheckpoint::Get(const std::string& name, std::int64_t rows, std::int64_t cols,
                           WeightRole role) {
  return GetPart({name, rows, cols, role});
}

void GgufCheckpoint::Leave(const std::string& name) {
  // Of all experts' biases, as OneExpert's.
  std::string ours = name;
  if (ours.ends_with(kBias)) ours.replace(ours.size() - kBias.size(), 1, ".");
  if (const GgufTensor* tensor = file_.Find(GgufPlaceOf(architecture_, ours).name)) {
    read_.insert(tensor);
  }
}

const GgufTensor* GgufCheckpoint::Found(const std::string& name, std::vector<std::int64_t> all,
                                        bool vector) {
  if (!status_.ok()) return nullptr;
  const GgufPlace place = GgufPlaceOf(architecture_, name);
  const std::string& theirs = place.name;
  const GgufTensor* tensor = file_.Find(theirs);
  if (tensor == nullptr) {
    Fail(StatusCode::kNotFound,
         fmt::format("tensor {} ({}) is missing; {} needs it", theirs.empty() ? name : theirs, name,
                     config_.architecture));
    return nullptr;
  }
  read_.insert(tensor);
  if (vector || (all[1] == 1 && tensor->sizes.size() == 1)) all.pop_back();
  if (place.expert >= 0) all.push_back(config_.experts);
  if (tensor->sizes != all) {
    Fail(StatusCode::kInvalidArgument,
         fmt::format("tensor {} is [{}]; the metadata makes it [{}]", theirs,
                     fmt::join(tensor->sizes, ", "), fmt::join(all, ", ")));
    return nullptr;
  }
  if (!tensor->type->known) {
    Fail(StatusCode::kUnsupported,
         fmt::format("tensor {} is {}; known types are {}; quantise the model to one of them",
                     theirs, tensor->type->name, KnownGgufTypes()));
    return nullptr;
  }
  return tensor;
}

bool GgufCheckpoint::Cut(const GgufTensor& tensor, std::int64_t first_row, std::int64_t rows,
                         std::int64_t first_col, std::int64_t cols, Part& part) {
  const std::int64_t row_bytes = tensor.row_bytes(), block = tensor.type->block_elements;
  part.tensor = tensor;
  part.tensor.sizes = {cols, rows};
  part.tensor.data += first_row * row_bytes;
  part.tensor.bytes = rows * row_bytes;
  if (cols == tensor.cols()) return true;
  if (first_col % block != 0 || cols % block != 0) {
    Fail(StatusCode::kUnsupported,
         fmt::format("tensor {} is {}, of blocks of {} columns, and a rank's part is {} columns "
                     "from {} on; take other numbers of ranks, or a file of Q8_0, F16 or BF16",
                     tensor.name, tensor.type->name, block, cols, first_col));
    return false;
  }
  const auto own = static_cast<std::size_t>(cols / block * tensor.type->block_bytes);
  const std::int64_t before = first_col / block * tensor.type->block_bytes;
  part.bytes.resize(static_cast<std::size_t>(rows) * own);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memcpy(part.bytes.data() + static_cast<std::size_t>(row) * own,
                part.tensor.data + row * row_bytes + before, own);
  }
  part.tensor.data = part.bytes.data();
  part.tensor.bytes = static_cast<std::int64_t>(part.bytes.size());
  return true;
}

Weight GgufCheckpoint::GetPart(const WeightRequest& request) {
  const auto& [name, rows, cols, role, first, of, first_col, of_cols] = request;
  const bool vector = IsVector(role);
  // `first` and `of` are a vector's elements, but rows of a matrix.
  const std::int64_t all_rows = of > 0 ? of : rows;
  const std::int64_t all_cols = vector ? (of > 0 ? of : cols) : of_cols > 0 ? of_cols : cols;
  const GgufTensor* tensor = Found(name, {all_cols, all_rows}, vector);
  if (tensor == nullptr) return {};
  const GgufPlace place = GgufPlaceOf(architecture_, name);
  const std::int64_t before =
      std::max<std::int64_t>(place.expert, 0) * (vector ? 1 : all_rows) + (vector ? 0 : first);
  Part part;
  if (!Cut(*tensor, before, rows, vector ? first : first_col, cols, part)) return {};
  Weight weight;
  weight.name = place.name;
  weight.rows = rows;
  weight.cols = cols;
  if (TakesCodes(part.tensor, role)) return Codes(part.tensor, std::move(weight));
  Numbers(part, weight);
  return status_.ok() ? weight : Weight{};
}

Weight GgufCheckpoint::GetStacked(const StackedRequest& request) {
  return GetPart(OneExpert(request));
}

std::pair<Weight, Weight> GgufCheckpoint::GetHeadParts(const std::string& name, std::int64_t heads,
                                                       std::int64_t keys, std::int64_t values,
                                                       std::int64_t k, ShardRange range) {
  const std::int64_t first = range.of > 0 ? range.first : 0, all = range.of > 0 ? range.of : heads;
  Weight of_keys, of_values;
  of_keys.name = name + "[keys]";
  of_keys.rows = heads * k;
  of_keys.cols = keys;
  of_values.name = name + "[values]";
  of_values.rows = heads * values;
  of_values.cols = k;
  Part part;
  if (file_.Find(GgufPlaceOf(architecture_, of_keys.name).name) != nullptr) {
    // Files have the parts as they are wanted, three dimensions of them.
    const auto get = [&](Weight& weight, std::int64_t of_head) {
      const std::string& theirs = GgufPlaceOf(architecture_, weight.name).name;
      const GgufTensor* tensor = Found(weight.name, {weight.cols, of_head, all}, false);
      if (tensor == nullptr ||
          !Cut(*tensor, first * of_head, heads * of_head, 0, weight.cols, part)) {
        return;
      }
      weight.name = theirs;
      weight = Widened(part, std::move(weight));
    };
    get(of_keys, k);
    get(of_values, values);
    if (!status_.ok()) return {};
    return {std::move(of_keys), std::move(of_values)};
  }
  const std::int64_t head = keys + values;
  const GgufTensor* tensor = Found(name, {k, all * head}, false);
  if (tensor == nullptr || !Cut(*tensor, first * head, heads * head, 0, k, part)) return {};
  const auto at = [](std::int64_t index) { return static_cast<std::size_t>(index); };
  std::vector<float> of_k(at(heads * k * keys)), of_v(at(heads * values * k));
  HostPool().Run(static_cast<int>(heads * head), [&](int row, int) {
    std::vector<float> numbers(at(k));
    LoadGgufRow(part.tensor, row, numbers);
    const std::int64_t number = row / head, in_head = row % head;
    if (in_head >= keys) {
      std::ranges::copy(numbers, of_v.begin() + (number * values + in_head - keys) * k);
      return;
    }
    for (std::int64_t col = 0; col < k; ++col) {
      of_k[at((number * k + col) * keys + in_head)] = numbers[at(col)];
    }
  });
  const DataType plain = PlainTypeOf(*tensor);
  const DataType type = plain == DataType::kNull ? DataType::kBfloat16 : plain;
  const auto place = [&](Weight& weight, const std::vector<float>& numbers) {
    weight.type = type;
    std::vector<std::byte> stored(numbers.size() * SizeOf(type));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      StoreFromDouble(stored.data(), type, static_cast<std::int64_t>(i), numbers[i]);
    }
    weight.data_ptr = Copied(stored.data(), stored.size());
  };
  place(of_keys, of_k);
  place(of_values, of_v);
  if (!status_.ok()) return {};
  return {std::move(of_keys), std::move(of_values)};
}

Weight GgufCheckpoint::Codes(const GgufTensor& tensor, Weight weight) {
  const auto codes = UnpackGguf(tensor);
  if (!codes) {
    Fail(codes.status().code(), codes.status().message());
    return {};
  }
  weight.type = codes->type;
  weight.quant = {QuantType::kK, codes->group};
  weight.data_ptr = Copied(codes->codes.data(), codes->codes.size());
  weight.scales_type = codes->scales_type;
  weight.scales_ptr = Copied(codes->scales.data(), codes->scales.size(), WeightPart::kScales);
  if (codes->zeros_type != DataType::kNull) {
    weight.zeros_type = codes->zeros_type;
    weight.zeros_ptr = Copied(codes->zeros.data(), codes->zeros.size(), WeightPart::kZeros);
  }
  return status_.ok() ? weight : Weight{};
}

void GgufCheckpoint::Numbers(const Part& part, Weight& weight) {
  const GgufTensor& tensor = part.tensor;
  weight.type = PlainTypeOf(tensor);
  if (weight.type != DataType::kNull) {
    const std::size_t size = SizeOf(weight.type), bytes = static_cast<std::size_t>(tensor.bytes);
    const DevicePtr mapped = ToDevicePtr(tensor.data);
    const bool in_place =
        part.bytes.empty() && memory().memory().reads_host_memory() && mapped % size == 0;
    weight.data_ptr = in_place ? mapped : Copied(tensor.data, bytes);
    return;
  }
  weight.type = DataType::kFloat32;
  const auto cols = static_cast<std::size_t>(tensor.cols());
  std::vector<float> numbers(static_cast<std::size_t>(tensor.rows()) * cols);
  HostPool().Run(static_cast<int>(tensor.rows()), [&](int row, int) {
    LoadGgufRow(tensor, row,
                std::span(numbers).subspan(static_cast<std::size_t>(row) * cols, cols));
  });
  weight.data_ptr = Copied(numbers.data(), numbers.size() * sizeof(float));
}

Weight GgufCheckpoint::Widened(const Part& part, Weight weight) {
  if (PlainTypeOf(part.tensor) != DataType::kNull) {
    Numbers(part, weight);
    return status_.ok() ? weight : Weight{};
  }
  const std::int64_t rows = part.tensor.rows(), cols = part.tensor.cols();
  std::vector<std::uint16_t> wide(static_cast<std::size_t>(rows * cols));
  HostPool().Run(static_cast<int>(rows), [&](int row, int) {
    std::vector<float> numbers(static_cast<std::size_t>(cols));
    LoadGgufRow(part.tensor, row, numbers);
    std::ranges::transform(numbers, wide.begin() + row * cols, FloatToBfloat16);
  });
  weight.type = DataType::kBfloat16;
  weight.data_ptr = Copied(wide.data(), wide.size() * sizeof(std::uint16_t));
  return status_.ok() ? weight : Weight{};
}

std::size_t GgufCheckpoint::bytes() const {
  std::size_t bytes = 0;
  for (const GgufTensor& tensor : file_.tensors()) {
    if (IsAhead(tensor.name)) continue;
    bytes += tensor.type->known && HasCodes(tensor) ? CodeBytes(tensor)
                                                    : static_cast<std::size_t>(tensor.bytes);
  }
  return bytes;
}

// Of a block behind the layers, where the metadata has some that predict tokens ahead.
bool GgufCheckpoint::IsAhead(std::string_view name) const {
  constexpr std::string_view kBlocks = "blk.";
  if (!name.starts_with(kBlocks)) return false;
  std::int64_t block = 0;
  const auto [end, error] =
      std::from_chars(name.data() + kBlocks.size(), name.data() + name.size(), block);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' &&
         block >= config_.layers && block < config_.layers + GgufBlocksAhead(file_);
}

Status GgufCheckpoint::AllRead() const {
  std::set<std::string> unread;
  for (const GgufTensor& tensor : file_.tensors()) {
    if (!read_.contains(&tensor) && !IsAhead(tensor.name) &&
        std::ranges::find(kReadByConfig, tensor.name) == std::end(kReadByConfig)) {
      unread.insert(Printable(tensor.name));
    }
  }
  if (unread.empty()) return {};
  constexpr std::size_t kShown = 8;
  const std::vector<std::string> all(unread.begin(), unread.end());
  return Status(
      StatusCode::kInvalidArgument,
      fmt::format("the file holds {} tensors that {} does not read: {}{}; the metadata does not "
                  "describe this model",
                  all.size(), config_.architecture,
                  fmt::join(std::span(all).first(std::min(kShown, all.size())), ", "),
                  all.size() > kShown ? ", ..." : ""));
}

}  // namespace culet
