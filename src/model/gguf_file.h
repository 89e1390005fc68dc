// GGUF files: mapped, checked, read in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "culet/status.h"

namespace culet {

/// Types of tensors that are read; the numbers are the format's.
enum class GgufType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBf16 = 30,
  kMxfp4 = 39,
};

/// What a type is called, and how it is stored. A row is whole blocks.
struct GgufTypeInfo {
  std::uint32_t number;
  const char* name;
  int block_elements;
  int block_bytes;
  bool known;  ///< whether it is one of GgufType
};
/// Null for a number that the format does not have.
const GgufTypeInfo* InfoOf(std::uint32_t type) noexcept;
/// "F32, F16, ...": those that are known.
std::string KnownGgufTypes();

/// A tensor in a mapped file: rows of `cols` elements; a vector has one row.
struct GgufTensor {
  std::string name;
  const GgufTypeInfo* type = nullptr;  ///< never null
  std::vector<std::int64_t> sizes;     ///< as in the file: the number of columns first
  const std::byte* data = nullptr;
  std::int64_t bytes = 0;

  bool is(GgufType which) const noexcept {
    return type->number == static_cast<std::uint32_t>(which);
  }
  std::int64_t cols() const noexcept { return sizes.front(); }
  /// The elements of all other dimensions together.
  std::int64_t rows() const noexcept;
  std::int64_t row_bytes() const noexcept { return bytes / rows(); }
};

/// A model's file, or all files of one that is split. The data is mapped and stays valid for as
/// long as this object lives.
class GgufFile {
 public:
  /// Of a split model, NAME-00001-of-00003.gguf, any file stands for all.
  /// Errors: NOT_FOUND, also for a part that is missing, by its name; IO; DATA_LOSS for everything
  /// that is not a well-formed file of version 2 or 3: lengths and counts beyond the file, a name
  /// or key twice, a tensor that is not whole blocks, not aligned or beyond the file; UNSUPPORTED
  /// for other versions, big-endian files, types of tensors that the format does not have and lists
  /// of lists. Parts that are another's, or contradict their names or each other, are named:
  /// DATA_LOSS.
  static Result<GgufFile> Open(const std::string& path);
  /// The same over the bytes of one file in memory, which must outlive the object.
  static Result<GgufFile> Parse(const std::byte* data, std::size_t bytes,
                                const std::string& origin);
  ~GgufFile();
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;

  const std::string& path() const noexcept;
  /// An object; integers, numbers, texts, true and false, and lists of one of them. Texts are as
  /// in the file, perhaps no UTF-8.
  const nlohmann::json& metadata() const noexcept;
  const std::vector<GgufTensor>& tensors() const noexcept;
  /// How many files these are.
  int parts() const noexcept;
  /// Null when there is none.
  const GgufTensor* Find(std::string_view name) const noexcept;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The GGUF file that a model's path means: itself, or the only one of a folder without
/// config.json, or the first of a split model; empty when it means none.
/// Errors: INVALID_ARGUMENT for a folder of several models, named.
Result<std::string> GgufPathOf(const std::string& path);

}  // namespace culet
