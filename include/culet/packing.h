// Packed weights: orders of B in memory that some kernels read faster than rows or columns.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "culet/problem.h"
#include "culet/status.h"

namespace culet {

/// Where the elements of a packed weight lie. A format is named by that, not by a kernel: every
/// kernel that names the format in Kernel::packs reads the same packed weight, whatever M is.
/// Gemm::Pack makes one. Its `number` is MatrixLayout::pack and stands in caches: never reuse one.
class PackFormat {
 public:
  constexpr PackFormat(int number, const char* name) noexcept : number_(number), name_(name) {}
  virtual ~PackFormat() = default;

  int number() const noexcept { return number_; }
  const char* name() const noexcept { return name_; }

  /// Ok, or a literal reason why no weight of this type is packed so.
  virtual const char* why(DataType type) const noexcept = 0;

  /// Bytes of a packed weight of rows x cols (k x n); -1 when they do not fit in 63 bits.
  /// Requires: rows, cols >= 1.
  virtual std::int64_t bytes(DataType type, int rows, int cols) const noexcept = 0;

  /// Packs a plain weight in host memory. Requires: `packed` has bytes().
  virtual void Pack(const void* weight, const MatrixLayout& plain, void* packed) const = 0;

  /// The inverse, into a plain layout; what lies between its rows or columns stays.
  virtual void Unpack(const void* packed, const MatrixLayout& plain, void* weight) const = 0;

  /// Packs in the memory of the current CUDA device, asynchronously on `stream`.
  /// Errors: UNSUPPORTED, unless the format does it.
  virtual Status PackOnDevice(const void* weight, const MatrixLayout& plain, void* packed,
                              cudaStream_t stream) const;

 private:
  int number_;
  const char* name_;
};

/// Every format there is, by number.
std::span<const PackFormat* const> PackFormats() noexcept;

/// The format with this number or name; null when there is none.
const PackFormat* FindPackFormat(int number) noexcept;
const PackFormat* FindPackFormat(std::string_view name) noexcept;

/// "k_major_n64": consecutive panels of 64 columns, each row of k of a panel contiguous: element
/// (k, n) at (n / 64 * rows + k) * 64 + n % 64. The last panel is filled up with zeros. Weights of
/// FP32, F16, BF16 and E4M3.
inline constexpr int kPackPanels64 = 1;
inline constexpr int kPanelColumns = 64;

/// The layout of `plain`, packed: what to give for B. It has no ld of its own.
MatrixLayout PackedLayout(const MatrixLayout& plain, const PackFormat& format) noexcept;

/// Bytes of a packed weight of this layout; -1 for a layout whose `pack` is no format.
std::int64_t PackedBytes(const MatrixLayout& layout) noexcept;

}  // namespace culet
