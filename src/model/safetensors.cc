// SafetensorsFile: mapping, and the checks that make every tensor's range safe to read.
#include "culet/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "culet/printable.h"
#include "model/mapped_file.h"
#include "model/safetensors_header.h"
#include "model/text_kind.h"

namespace culet {
namespace {

constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // as the format's own library
constexpr std::size_t kLengthBytes = 8;

struct Dtype {
  const char* name;
  int bits;
  DataType type;
};
constexpr Dtype kDtypes[] = {
    {"F64", 64, DataType::kNull},
    {"F32", 32, DataType::kFloat32},
    {"F16", 16, DataType::kFloat16},
    {"BF16", 16, DataType::kBfloat16},
    {"F8_E4M3", 8, DataType::kFloat8_e4m3},
    {"F8_E5M2", 8, DataType::kNull},
    {"F8_E8M0", 8, DataType::kFloat8_ue8m0},
    {"I64", 64, DataType::kNull},
    {"I32", 32, DataType::kInt32},
    {"I16", 16, DataType::kNull},
    {"I8", 8, DataType::kInt8},
    {"U64", 64, DataType::kNull},
    {"U32", 32, DataType::kNull},
    {"U16", 16, DataType::kNull},
    {"U8", 8, DataType::kNull},
    {"BOOL", 8, DataType::kNull},
};

const Dtype* FindDtype(std::string_view name) noexcept {
  for (const Dtype& dtype : kDtypes) {
    if (name == dtype.name) return &dtype;
  }
  return nullptr;
}

// The bytes that a shape needs; false when they do not fit in 63 bits.
bool NeededBytes(const std::vector<std::int64_t>& shape, int bits, std::int64_t* bytes) {
  std::int64_t elements = 1;
  bool empty = false;
  for (const std::int64_t size : shape) empty |= size == 0;
  for (const std::int64_t size : shape) {
    if (!empty && __builtin_mul_overflow(elements, size, &elements)) return false;
  }
  if (empty) elements = 0;
  return !__builtin_mul_overflow(elements, std::int64_t{bits / 8}, bytes);
}

template <class... Args>
Status Damaged(const std::string& origin, fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kDataLoss,
                fmt::format("{}: {}", origin, fmt::format(format, std::forward<Args>(args)...)));
}

// Every tensor's range is what its shape says, and together they are exactly the data.
Status CheckRanges(std::vector<HeaderTensor>& tensors, std::int64_t data_bytes,
                   const std::string& origin) {
  for (const HeaderTensor& tensor : tensors) {
    const auto name = [&] { return Printable(tensor.name); };
    const Dtype* dtype = FindDtype(tensor.dtype);
    if (dtype == nullptr) {
      std::string known;
      for (const Dtype& d : kDtypes) known += fmt::format(" {}", d.name);
      return Damaged(origin, "tensor {} has the unknown dtype {}; known are{}", name(),
                     Printable(tensor.dtype, 20), known);
    }
    std::int64_t bytes = 0;
    if (!NeededBytes(tensor.shape, dtype->bits, &bytes)) {
      return Damaged(origin, "tensor {} has more than 2^63 bytes", name());
    }
    if (tensor.begin > tensor.end || tensor.end > data_bytes) {
      return Damaged(origin, "tensor {} lies at [{}, {}) of {} bytes of data", name(), tensor.begin,
                     tensor.end, data_bytes);
    }
    if (tensor.end - tensor.begin != bytes) {
      return Damaged(origin, "tensor {} has {} bytes, but its shape needs {}", name(),
                     tensor.end - tensor.begin, bytes);
    }
  }
  std::ranges::sort(tensors, [](const HeaderTensor& a, const HeaderTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::int64_t covered = 0;
  for (const HeaderTensor& tensor : tensors) {
    if (tensor.begin != covered) {
      return Damaged(origin, "tensor {} begins at {}, the data before it ends at {}; {}",
                     Printable(tensor.name), tensor.begin, covered,
                     tensor.begin < covered ? "they overlap" : "there is a gap");
    }
    covered = tensor.end;
  }
  if (covered != data_bytes) {
    return Damaged(origin, "the tensors have {} bytes, the file holds {} behind its header",
                   covered, data_bytes);
  }
  return {};
}

}  // namespace

DataType SafetensorsTensor::type() const noexcept {
  const Dtype* known = FindDtype(dtype);
  return known != nullptr ? known->type : DataType::kNull;
}

std::int64_t SafetensorsTensor::elements() const noexcept {
  const Dtype* known = FindDtype(dtype);
  return known != nullptr ? bytes / (known->bits / 8) : 0;
}

struct SafetensorsFile::Impl {
  std::string path;
  MappedFile file;
  std::vector<SafetensorsTensor> tensors;
  std::unordered_map<std::string_view, std::size_t> index;  // names live in `tensors`
};

SafetensorsFile::SafetensorsFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

Result<SafetensorsFile> SafetensorsFile::Parse(const std::byte* data, std::size_t bytes,
                                               const std::string& origin) {
  const std::string_view text(reinterpret_cast<const char*>(data), bytes);
  if (bytes < kLengthBytes) {
    return Damaged(origin, "it has {} bytes; a safetensors file begins with 8 bytes of length",
                   bytes);
  }
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    header_bytes |= std::to_integer<std::uint64_t>(data[i]) << (8 * i);
  }
  if (header_bytes > kMostHeaderBytes || header_bytes > bytes - kLengthBytes) {
    if (IsText(text)) {
      return Damaged(origin, "this is text, not safetensors{}", ReplacedBy(text));
    }
    return Damaged(origin, "its header claims {} bytes; the file has {}, the format allows {}",
                   header_bytes, bytes, kMostHeaderBytes);
  }
  const std::size_t data_start = kLengthBytes + static_cast<std::size_t>(header_bytes);
  const std::string_view header = text.substr(kLengthBytes, static_cast<std::size_t>(header_bytes));
  auto parsed = ParseSafetensorsHeader(header, origin);
  if (!parsed) return parsed.status();
  CULET_RETURN_IF_ERROR(
      CheckRanges(*parsed, static_cast<std::int64_t>(bytes - data_start), origin));

  auto impl = std::make_unique<Impl>();
  impl->path = origin;
  impl->tensors.reserve(parsed->size());
  for (HeaderTensor& tensor : *parsed) {
    impl->tensors.push_back({std::move(tensor.name), std::move(tensor.dtype),
                             std::move(tensor.shape), data + data_start + tensor.begin,
                             tensor.end - tensor.begin});
  }
  for (std::size_t i = 0; i < impl->tensors.size(); ++i) impl->index[impl->tensors[i].name] = i;
  return SafetensorsFile(std::move(impl));
}

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  auto file = MappedFile::Open(path);
  if (!file) return file.status();
  auto parsed = Parse(file->data(), file->bytes(), path);
  if (parsed) parsed->impl_->file = *std::move(file);
  return parsed;
}

const std::string& SafetensorsFile::path() const noexcept { return impl_->path; }
const std::vector<SafetensorsTensor>& SafetensorsFile::tensors() const noexcept {
  return impl_->tensors;
}
const SafetensorsTensor* SafetensorsFile::Find(std::string_view name) const noexcept {
  const auto it = impl_->index.find(name);
  return it != impl_->index.end() ? &impl_->tensors[it->second] : nullptr;
}

}  // namespace culet
