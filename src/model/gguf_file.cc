// GgufFile: mapping, and the checks that make every text, list and tensor safe to read.
#include "model/gguf_file.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file_io.h"
#include "culet/printable.h"
#include "model/mapped_file.h"
#include "model/text_kind.h"

namespace culet {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr char kMagic[] = {'G', 'G', 'U', 'F'};
constexpr std::size_t kShownName = 100;  // bytes of a name in a message
constexpr std::uint64_t kMostNameBytes = 1000;
constexpr std::uint32_t kMostDimensions = 4;
constexpr std::uint64_t kDefaultAlignment = 32, kMostAlignment = 1 << 20;

constexpr GgufTypeInfo kTypes[] = {
    {0, "F32", 1, 4, true},          {1, "F16", 1, 2, true},
    {2, "Q4_0", 32, 18, true},       {3, "Q4_1", 32, 20, true},
    {6, "Q5_0", 32, 22, true},       {7, "Q5_1", 32, 24, true},
    {8, "Q8_0", 32, 34, true},       {9, "Q8_1", 32, 36, false},
    {10, "Q2_K", 256, 84, false},    {11, "Q3_K", 256, 110, false},
    {12, "Q4_K", 256, 144, true},    {13, "Q5_K", 256, 176, true},
    {14, "Q6_K", 256, 210, true},    {15, "Q8_K", 256, 292, false},
    {16, "IQ2_XXS", 256, 66, false}, {17, "IQ2_XS", 256, 74, false},
    {18, "IQ3_XXS", 256, 98, false}, {19, "IQ1_S", 256, 50, false},
    {20, "IQ4_NL", 32, 18, true},    {21, "IQ3_S", 256, 110, false},
    {22, "IQ2_S", 256, 82, false},   {23, "IQ4_XS", 256, 136, true},
    {24, "I8", 1, 1, false},         {25, "I16", 1, 2, false},
    {26, "I32", 1, 4, false},        {27, "I64", 1, 8, false},
    {28, "F64", 1, 8, false},        {29, "IQ1_M", 256, 56, false},
    {30, "BF16", 1, 2, true},        {34, "TQ1_0", 256, 54, false},
    {35, "TQ2_0", 256, 66, false},   {39, "MXFP4", 32, 17, true},
};

// Types of metadata.
enum ValueType : std::uint32_t {
  kUint8 = 0,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

template <class... Args>
Status Damaged(const std::string& origin, fmt::format_string<Args...> format, Args&&... args) {
  return Status(StatusCode::kDataLoss,
                fmt::format("{}: {}", origin, fmt::format(format, std::forward<Args>(args)...)));
}

// Reads from the front; the first thing that is not there ends it.
class Reader {
 public:
  Reader(const std::byte* data, std::size_t bytes, const std::string& origin)
      : data_(data), bytes_(bytes), origin_(origin) {}

  const Status& status() const noexcept { return status_; }
  std::size_t at() const noexcept { return at_; }
  std::size_t left() const noexcept { return bytes_ - at_; }

  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  template <class T>
  T Number(std::string_view what) {
    T value{};
    if (!Has(sizeof value, what)) return value;
    std::memcpy(&value, data_ + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  std::string Text(std::string_view what) {
    const auto length = Number<std::uint64_t>(what);
    if (!Has(length, what)) return {};
    std::string text(reinterpret_cast<const char*>(data_ + at_), static_cast<std::size_t>(length));
    at_ += static_cast<std::size_t>(length);
    return text;
  }

  json Value(std::uint32_t type, std::string_view what) {
    switch (type) {
      case kUint8:
        return Number<std::uint8_t>(what);
      case kInt8:
        return Number<std::int8_t>(what);
      case kUint16:
        return Number<std::uint16_t>(what);
      case kInt16:
        return Number<std::int16_t>(what);
      case kUint32:
        return Number<std::uint32_t>(what);
      case kInt32:
        return Number<std::int32_t>(what);
      case kFloat32:
        return Number<float>(what);
      case kBool:
        return Number<std::uint8_t>(what) != 0;
      case kString:
        return Text(what);
      case kArray:
        return List(what);
      case kUint64:
        return Number<std::uint64_t>(what);
      case kInt64:
        return Number<std::int64_t>(what);
      case kFloat64:
        return Number<double>(what);
      default:
        Fail(Damaged(origin_, "{} has the unknown type {}", what, type));
        return nullptr;
    }
  }

 private:
  bool Has(std::uint64_t bytes, std::string_view what) {
    if (!status_.ok()) return false;
    if (bytes <= left()) return true;
    Fail(Damaged(origin_,
                 "{} needs {} bytes at byte {}; the file has {}: it was cut off, or is "
                 "damaged; fetch it again",
                 what, bytes, at_, bytes_));
    return false;
  }

  json List(std::string_view what) {
    const auto type = Number<std::uint32_t>(what);
    const auto count = Number<std::uint64_t>(what);
    if (status_.ok() && type == kArray) {
      Fail(Status(StatusCode::kUnsupported,
                  fmt::format("{}: {} is a list of lists; known are lists of numbers, flags and "
                              "texts",
                              origin_, what)));
    }
    // Each element has a byte, so that a count cannot ask for more memory than the file justifies.
    if (!Has(count, what)) return nullptr;
    json list = json::array();
    for (std::uint64_t i = 0; i < count && status_.ok(); ++i) list.push_back(Value(type, what));
    return list;
  }

  const std::byte* data_;
  std::size_t bytes_, at_ = 0;
  const std::string& origin_;
  Status status_;
};

bool HasGgufName(const fs::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".gguf";
}

// NAME-00002-of-00003.gguf, in its pieces; `of` 0: another name.
struct PartName {
  std::string before, behind;
  int number = 0, of = 0;
  std::string At(int i) const { return fmt::format("{}-{:05}-of-{:05}{}", before, i, of, behind); }
};

PartName PartNameOf(const std::string& path) {
  constexpr std::size_t kDigits = 5, kExtension = 5;
  constexpr std::string_view kOf = "-of-";
  constexpr std::size_t kLength = 1 + 2 * kDigits + kOf.size() + kExtension;
  PartName name;
  if (path.size() <= kLength || !HasGgufName(path)) return name;
  const std::string_view end = std::string_view(path).substr(path.size() - kLength);
  const auto number = [&](std::size_t at) {
    int value = 0;
    for (const char c : end.substr(at, kDigits)) {
      if (c < '0' || c > '9') return 0;
      value = 10 * value + (c - '0');
    }
    return value;
  };
  const int of = number(1 + kDigits + kOf.size());
  if (end[0] != '-' || end.substr(1 + kDigits, kOf.size()) != kOf) return name;
  name.before = path.substr(0, path.size() - kLength);
  name.behind = end.substr(kLength - kExtension);
  name.number = number(1);
  name.of = name.number >= 1 && name.number <= of ? of : 0;
  return name;
}

// A whole number of the metadata, or -1.
std::int64_t NumberOf(const json& metadata, const char* key) {
  const auto it = metadata.find(key);
  const bool whole = it != metadata.end() && it->is_number_integer() && *it >= 0 &&
                     *it <= std::numeric_limits<std::int32_t>::max();
  return whole ? it->get<std::int64_t>() : -1;
}

// By its first bytes; of a regular file, as others may block.
bool IsGguf(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof(magic));
  return HasGgufName(path) || std::memcmp(magic, kMagic, sizeof(magic)) == 0;
}

}  // namespace

const GgufTypeInfo* InfoOf(std::uint32_t type) noexcept {
  for (const GgufTypeInfo& info : kTypes) {
    if (info.number == type) return &info;
  }
  return nullptr;
}

std::string KnownGgufTypes() {
  std::vector<const char*> names;
  for (const GgufTypeInfo& info : kTypes) {
    if (info.known) names.push_back(info.name);
  }
  return fmt::to_string(fmt::join(names, ", "));
}

std::int64_t GgufTensor::rows() const noexcept {
  std::int64_t rows = 1;
  for (std::size_t i = 1; i < sizes.size(); ++i) rows *= sizes[i];
  return rows;
}

struct GgufFile::Impl {
  std::string path;
  std::vector<MappedFile> files;
  int parts = 1;
  json metadata = json::object();
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string_view, std::size_t> index;  // names live in `tensors`

  Status ReadMetadata(Reader& reader, std::uint64_t count);
  Status ReadTensors(Reader& reader, std::uint64_t count, std::vector<std::uint64_t>& offsets);
  /// Takes the tensors of another file of the model.
  Status Append(Impl&& part);
  Status PlaceTensors(const std::byte* data, std::size_t bytes, std::size_t header,
                      const std::vector<std::uint64_t>& offsets);
};

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgufFile::~GgufFile() = default;
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;

Status GgufFile::Impl::ReadMetadata(Reader& reader, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    std::string key = reader.Text("a key of the metadata");
    const std::string shown = "metadata " + Printable(key, kShownName);
    const auto type = reader.Number<std::uint32_t>(shown);
    json value = reader.Value(type, shown);
    CULET_RETURN_IF_ERROR(reader.status());
    if (metadata.contains(key)) return Damaged(path, "{} stands twice", shown);
    metadata[std::move(key)] = std::move(value);
  }
  return {};
}

Status GgufFile::Impl::ReadTensors(Reader& reader, std::uint64_t count,
                                   std::vector<std::uint64_t>& offsets) {
  for (std::uint64_t i = 0; i < count; ++i) {
    GgufTensor tensor;
    tensor.name = reader.Text("a tensor's name");
    CULET_RETURN_IF_ERROR(reader.status());
    if (tensor.name.size() > kMostNameBytes) {
      return Damaged(path, "a tensor's name has {} bytes, more than {}", tensor.name.size(),
                     kMostNameBytes);
    }
    const std::string shown = "tensor " + Printable(tensor.name, kShownName);
    const auto dimensions = reader.Number<std::uint32_t>(shown);
    if (reader.status().ok() && (dimensions < 1 || dimensions > kMostDimensions)) {
      return Damaged(path, "{} has {} dimensions; the format has 1 to {}", shown, dimensions,
                     kMostDimensions);
    }
    std::int64_t elements = 1;
    for (std::uint32_t d = 0; d < dimensions && reader.status().ok(); ++d) {
      const auto size = static_cast<std::int64_t>(reader.Number<std::uint64_t>(shown));
      if (reader.status().ok() && (size < 1 || __builtin_mul_overflow(elements, size, &elements))) {
        return Damaged(path, "{} has the dimension {}, or more than 2^63 elements", shown,
                       static_cast<std::uint64_t>(size));
      }
      tensor.sizes.push_back(size);
    }
    const auto type = reader.Number<std::uint32_t>(shown);
    const auto offset = reader.Number<std::uint64_t>(shown);
    CULET_RETURN_IF_ERROR(reader.status());
    tensor.type = InfoOf(type);
    if (tensor.type == nullptr) {
      return Status(StatusCode::kUnsupported,
                    fmt::format("{}: {} has the unknown type {}; known are {}", path, shown, type,
                                KnownGgufTypes()));
    }
    if (tensor.cols() % tensor.type->block_elements != 0) {
      return Damaged(path, "{} is {} with rows of {} elements, no multiple of {}", shown,
                     tensor.type->name, tensor.cols(), tensor.type->block_elements);
    }
    if (__builtin_mul_overflow(elements / tensor.type->block_elements,
                               std::int64_t{tensor.type->block_bytes}, &tensor.bytes)) {
      return Damaged(path, "{} has more than 2^63 bytes", shown);
    }
    tensors.push_back(std::move(tensor));
    offsets.push_back(offset);
  }
  return {};
}

Status GgufFile::Impl::PlaceTensors(const std::byte* data, std::size_t bytes, std::size_t header,
                                    const std::vector<std::uint64_t>& offsets) {
  std::uint64_t alignment = kDefaultAlignment;
  if (const auto it = metadata.find("general.alignment"); it != metadata.end()) {
    alignment = it->is_number_unsigned() ? it->get<std::uint64_t>() : 0;
    if (alignment < 1 || alignment > kMostAlignment || (alignment & (alignment - 1)) != 0) {
      return Damaged(path, "metadata general.alignment is {}; it must be a power of two up to {}",
                     Printable(it->dump(-1, ' ', true, json::error_handler_t::replace), kShownName),
                     kMostAlignment);
    }
  }
  const std::uint64_t start = (header + alignment - 1) / alignment * alignment;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    GgufTensor& tensor = tensors[i];
    const std::uint64_t of_data = bytes > start ? bytes - start : 0;
    const auto shown = [&] { return Printable(tensor.name, kShownName); };
    if (offsets[i] > of_data || static_cast<std::uint64_t>(tensor.bytes) > of_data - offsets[i]) {
      return Damaged(path,
                     "tensor {} has {} bytes at {} of {} bytes of data: the file was cut off, "
                     "or is damaged; fetch it again",
                     shown(), tensor.bytes, offsets[i], of_data);
    }
    if (offsets[i] % alignment != 0) {
      return Damaged(path, "tensor {} lies at {}, no multiple of the alignment {}", shown(),
                     offsets[i], alignment);
    }
    tensor.data = data + start + offsets[i];
    if (!index.emplace(tensor.name, i).second) {
      return Damaged(path, "tensor {} stands twice", shown());
    }
  }
  return {};
}

Result<GgufFile> GgufFile::Parse(const std::byte* data, std::size_t bytes,
                                 const std::string& origin) {
  auto impl = std::make_unique<Impl>();
  impl->path = origin;
  Reader reader(data, bytes, impl->path);
  if (bytes < sizeof kMagic || std::memcmp(data, kMagic, sizeof kMagic) != 0) {
    const std::string_view text(reinterpret_cast<const char*>(data), bytes);
    return Damaged(origin, "it does not begin with GGUF{}", ReplacedBy(text));
  }
  static_cast<void>(reader.Number<std::uint32_t>("the magic number"));
  const auto version = reader.Number<std::uint32_t>("the version");
  CULET_RETURN_IF_ERROR(reader.status());
  if (version != 2 && version != 3) {
    constexpr std::uint32_t kUpper = 0xffff;
    const bool swapped = version != 0 && (version & kUpper) == 0;
    return Status(StatusCode::kUnsupported,
                  fmt::format("{}: this is GGUF of version {}{}; known are 2 and 3, little-endian; "
                              "convert the model again with a current llama.cpp",
                              origin, version, swapped ? " (a big-endian file)" : ""));
  }
  const auto tensor_count = reader.Number<std::uint64_t>("the number of tensors");
  const auto key_count = reader.Number<std::uint64_t>("the number of keys");
  CULET_RETURN_IF_ERROR(reader.status());
  CULET_RETURN_IF_ERROR(impl->ReadMetadata(reader, key_count));
  std::vector<std::uint64_t> offsets;
  CULET_RETURN_IF_ERROR(impl->ReadTensors(reader, tensor_count, offsets));
  CULET_RETURN_IF_ERROR(impl->PlaceTensors(data, bytes, reader.at(), offsets));
  return GgufFile(std::move(impl));
}

Status GgufFile::Impl::Append(Impl&& part) {
  for (GgufTensor& tensor : part.tensors) {
    if (index.contains(tensor.name)) {
      return Damaged(part.path, "tensor {} stands twice: in another file of the model, too",
                     Printable(tensor.name, kShownName));
    }
    tensors.push_back(std::move(tensor));
  }
  for (MappedFile& file : part.files) files.push_back(std::move(file));
  index.clear();  // names have moved
  for (std::size_t i = 0; i < tensors.size(); ++i) index.emplace(tensors[i].name, i);
  ++parts;
  return {};
}

Result<GgufFile> GgufFile::Open(const std::string& path) {
  const auto open = [](const std::string& one) -> Result<GgufFile> {
    auto file = MappedFile::Open(one);
    if (!file) return file.status();
    auto parsed = Parse(file->data(), file->bytes(), one);
    if (parsed) parsed->impl_->files.push_back(*std::move(file));
    return parsed;
  };
  auto given = open(path);
  if (!given) return given;
  const std::int64_t count = NumberOf(given->metadata(), "split.count");
  if (count <= 1) return given;
  const PartName name = PartNameOf(path);
  if (name.of != count) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("{} is one of {} files of a model; merge them with llama-gguf-split "
                              "--merge, or give them the names that it made: "
                              "...-00001-of-{:05}.gguf",
                              path, count, count));
  }
  std::unique_ptr<Impl> whole;
  std::int64_t all = -1;
  for (int i = 1; i <= name.of; ++i) {
    auto part = i == name.number ? std::move(given) : open(name.At(i));
    if (!part && part.status().code() == StatusCode::kNotFound) {
      return Status(StatusCode::kNotFound,
                    fmt::format("{} is missing, the file {} of {} of a model; fetch it", name.At(i),
                                i, name.of));
    }
    if (!part) return part;
    const json& metadata = part->metadata();
    if (NumberOf(metadata, "split.no") != i - 1 || NumberOf(metadata, "split.count") != count) {
      return Damaged(name.At(i),
                     "metadata split.no is {} and split.count {}; by its name they must be {} and "
                     "{}: it is another file; fetch it again",
                     NumberOf(metadata, "split.no"), NumberOf(metadata, "split.count"), i - 1,
                     count);
    }
    const std::int64_t tensors = NumberOf(metadata, "split.tensors.count");
    if (i == 1) all = tensors;
    if (tensors != all) {
      return Damaged(name.At(i),
                     "metadata split.tensors.count is {}, in the first file {}: it is another "
                     "model's",
                     tensors, all);
    }
    if (whole == nullptr) {
      whole = std::move(part->impl_);
      continue;
    }
    CULET_RETURN_IF_ERROR(whole->Append(std::move(*part->impl_)));
  }
  const auto found = static_cast<std::int64_t>(whole->tensors.size());
  if (all >= 0 && found != all) {
    return Damaged(whole->path, "its {} files have {} tensors; metadata split.tensors.count is {}",
                   name.of, found, all);
  }
  return GgufFile(std::move(whole));
}

int GgufFile::parts() const noexcept { return impl_->parts; }
const std::string& GgufFile::path() const noexcept { return impl_->path; }
const json& GgufFile::metadata() const noexcept { return impl_->metadata; }
const std::vector<GgufTensor>& GgufFile::tensors() const noexcept { return impl_->tensors; }
const GgufTensor* GgufFile::Find(std::string_view name) const noexcept {
  const auto it = impl_->index.find(name);
  return it != impl_->index.end() ? &impl_->tensors[it->second] : nullptr;
}

Result<std::string> GgufPathOf(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return IsGguf(path) ? path : std::string();
  if (fs::exists(fs::path(path) / "config.json", error)) return std::string();
  std::vector<std::string> found;
  for (const std::string& name : NamesIn(path)) {
    if (HasGgufName(name)) found.push_back(name);
  }
  if (found.empty()) return std::string();
  if (found.size() == 1) return (fs::path(path) / found.front()).string();
  std::ranges::sort(found);
  const PartName first = PartNameOf(found.front());
  const bool one_model = first.of > 0 && std::ranges::all_of(found, [&](const std::string& name) {
                           const PartName part = PartNameOf(name);
                           return part.of > 0 && part.At(first.number) == found.front();
                         });
  if (one_model) return (fs::path(path) / found.front()).string();
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{} holds {} GGUF files; give the path of one: {}", path, found.size(),
                            Printable(fmt::to_string(fmt::join(found, ", ")), 10 * kShownName)));
}

}  // namespace culet
