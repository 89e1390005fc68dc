// Safetensors files: mapped, checked, read in place; and written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "culet/status.h"
#include "culet/types.h"

namespace culet {

/// A tensor in a mapped file.
struct SafetensorsTensor {
  std::string name;
  std::string dtype;  ///< as in the file: "BF16", "F32", "I64", "F8_E4M3", ...
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;  ///< as the file aligns it: perhaps not at all
  std::int64_t bytes = 0;

  /// The element type; kNull for those that culet has no name for ("I64", "U8", ...).
  DataType type() const noexcept;
  std::int64_t elements() const noexcept;  ///< 1 for no dimensions
};

/// One file. The data is mapped and stays valid for as long as this object lives; whoever truncates
/// the file meanwhile takes the process with it, as with every mapping.
class SafetensorsFile {
 public:
  /// Errors: NOT_FOUND, IO; DATA_LOSS for everything that is not a well-formed file: a header that
  /// is longer than 100 MB or than the file, no JSON of the right form, a name twice or of more
  /// than 1000 bytes, an unknown dtype, a size that is not what shape and dtype say, ranges that
  /// overlap, leave gaps or reach beyond the file.
  static Result<SafetensorsFile> Open(const std::string& path);
  /// The same over bytes in memory, which must outlive the object.
  static Result<SafetensorsFile> Parse(const std::byte* data, std::size_t bytes,
                                       const std::string& origin);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::string& path() const noexcept;
  /// In the order in which they lie in the file.
  const std::vector<SafetensorsTensor>& tensors() const noexcept;
  /// Null when there is none.
  const SafetensorsTensor* Find(std::string_view name) const noexcept;

 private:
  struct Impl;
  explicit SafetensorsFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A tensor to be written; `data` holds the elements row by row.
struct SafetensorsEntry {
  std::string name;
  DataType type = DataType::kFloat32;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;
  /// Where there is no `data`: called when its turn comes, to fill so many bytes, so that only one
  /// tensor is in memory at a time.
  std::function<Status(std::span<std::byte>)> make = nullptr;
  /// Instead of `type`: how files spell a type that DataType has no name for, "I64" or "U8".
  std::string dtype = {};
};

/// A file that will be there whole or not at all: until Write ends well, what was there stays.
class SafetensorsWriter {
 public:
  /// Finds out whether `path` can be written; goes through a symbolic link, and writes in place
  /// what is no regular file. `stop`, which may be null, is asked while the reader of a pipe lets
  /// the writer wait; true ends it. Errors: IO, also for a pipe that nobody reads.
  static Result<SafetensorsWriter> Open(const std::string& path,
                                        std::function<bool()> stop = nullptr);
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;

  /// Writes these tensors in this order, one behind the other. Once.
  /// Errors: INVALID_ARGUMENT for a type that the format has no name for, a negative size, neither
  /// data nor make, a name twice, a tensor that would not lie at a multiple of its element's size
  /// (wider types go first); IO; FAILED_PRECONDITION when `stop` ended it; what `make` returns.
  Status Write(const std::vector<SafetensorsEntry>& entries);

 private:
  struct Impl;
  explicit SafetensorsWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Both at once.
Status WriteSafetensors(const std::string& path, const std::vector<SafetensorsEntry>& entries);

}  // namespace culet
