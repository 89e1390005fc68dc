// WriteSafetensors.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "culet/safetensors.h"

namespace culet {
namespace {

constexpr std::size_t kHeaderAlignment = 8;

const char* NameOf(DataType type) noexcept {
  switch (type) {
    case DataType::kFloat32:
      return "F32";
    case DataType::kFloat16:
      return "F16";
    case DataType::kBfloat16:
      return "BF16";
    case DataType::kFloat8_e4m3:
      return "F8_E4M3";
    case DataType::kFloat8_ue8m0:
      return "F8_E8M0";
    case DataType::kInt32:
      return "I32";
    case DataType::kNull:
      break;
  }
  return nullptr;
}

Result<std::int64_t> BytesOf(const SafetensorsEntry& entry) {
  auto bytes = static_cast<std::int64_t>(SizeOf(entry.type));
  for (const std::int64_t size : entry.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) {
      return Status(
          StatusCode::kInvalidArgument,
          fmt::format("tensor {} has the dimension {}, or more than 2^63 bytes", entry.name, size));
    }
  }
  return bytes;
}

}  // namespace

Status WriteSafetensors(const std::string& path, const std::vector<SafetensorsEntry>& entries) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes;
  for (const SafetensorsEntry& entry : entries) {
    const char* dtype = NameOf(entry.type);
    if (dtype == nullptr || header.contains(entry.name) || entry.name == "__metadata__") {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("tensor {} has type {}, or its name is taken", entry.name,
                                ToString(entry.type)));
    }
    const auto bytes = BytesOf(entry);
    if (!bytes) return bytes.status();
    if (offset % static_cast<std::int64_t>(SizeOf(entry.type)) != 0) {
      // The format knows no gaps.
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("tensor {} would lie at byte {}; write wider types first",
                                entry.name, offset));
    }
    header[entry.name] = {
        {"dtype", dtype}, {"shape", entry.shape}, {"data_offsets", {offset, offset + *bytes}}};
    offset += *bytes;
    sizes.push_back(*bytes);
  }
  std::string text = header.dump(-1, ' ', /*ensure_ascii=*/false,
                                 nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');

  errno = 0;
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
  stream.write(length, sizeof(length));
  stream.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    stream.write(static_cast<const char*>(entries[i].data), static_cast<std::streamsize>(sizes[i]));
  }
  stream.close();
  if (!stream) {
    return Status(StatusCode::kIo,
                  fmt::format("{} cannot be written: {}", path, std::strerror(errno)));
  }
  return {};
}

}  // namespace culet
