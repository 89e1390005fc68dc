// Synthetic problems: inputs, poisoned outputs and guard zones for tuning, benchmarks and tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "culet/desc.h"
#include "culet/device.h"
#include "culet/kernel.h"
#include "culet/status.h"

namespace culet {

/// What the inputs hold.
enum class Fill : std::uint8_t {
  kNormal,    ///< standard normal, quantised where the format is
  kIntegers,  ///< small integers and power-of-two scales: every partial sum is exact
  kExtreme,   ///< normal data with scales and magnitudes near the format's ends
};

struct ScratchOptions {
  Fill fill = Fill::kNormal;
  std::uint64_t seed = 1;
  int sets = 1;                  ///< at least this many input sets at different addresses
  std::size_t rotate_bytes = 0;  ///< and so many that all sets together exceed this
  std::size_t gap_bytes = 0;     ///< at least so many bytes between the lines of every matrix
  bool as_allocated = false;     ///< matrices begin where allocators place them, on 256 bytes, and
                                 ///< have their alignment class by the distance of their lines
                                 ///< alone; else they begin on no more than that class
  float alpha = 1.0f;
  float beta = 1.0f;  ///< used when the problem reads C; not 0
  /// Called on the calling thread while inputs are made, copied and compared; true, or an
  /// exception, ends that with RESOURCE_EXHAUSTED. May be null.
  std::function<bool()> stop;
};

/// How far an output is from the double-precision product.
struct ErrorReport {
  double relative_l2 = 0;     ///< ||D - R|| / ||R||, over the elements whose R is finite
  double relative_bound = 0;  ///< ||bound|| / ||R||: a comparison says little when this nears 1
  double max_over_bound = 0;  ///< largest |D - R| over the bound of its element; > 1 is wrong
  std::size_t checked = 0;    ///< elements compared with the reference
  std::size_t unwritten = 0;  ///< elements that still hold the poison
  bool guards_intact =
      true;  ///< nothing was written around D, between its lines, or to small inputs
  int worst_row = 0, worst_col = 0;
  double worst_value = 0, worst_reference = 0;
  bool ok() const noexcept {
    return max_over_bound <= 1.0 && unwritten == 0 && guards_intact && checked > 0;
  }
  /// One sentence about the first fault, with element and values; "ok" if there is none.
  std::string ToString() const;
};

/// Inputs and outputs for a GemmDesc in memory of its own on `device`, with the desc's orders and
/// exactly its alignment classes. Inputs of all sets are equal, their addresses differ; around the
/// inputs and between their lines lie NaNs. Row i and column j hold the same values whatever m and
/// n are (but for Fill::kExtreme).
class ScratchProblem {
 public:
  /// Errors: INVALID_ARGUMENT for a desc that Describe could not have made, RESOURCE_EXHAUSTED when
  /// memory is short.
  static Result<ScratchProblem> Create(const DeviceInfo& device, const GemmDesc& desc,
                                       const ScratchOptions& options = {});
  ~ScratchProblem();
  ScratchProblem(ScratchProblem&&) noexcept;
  ScratchProblem& operator=(ScratchProblem&&) noexcept;

  int sets() const noexcept;
  /// The set that was not used for longest, for measurements whose launches take turns over all.
  int NextSet() noexcept;
  /// The problem over set `index` modulo sets(). Describe(args(i), desc.arch) gives back the desc.
  const GemmArgs& args(int index = 0) const noexcept;
  const GemmDesc& desc() const noexcept;

  /// A workspace of at least `size`, initialised; grows as needed and stays owned here.
  Result<Workspace*> workspace(const WorkspaceSize& size);

  /// Fills the output of a set with poison (NaNs with a known pattern) and renews its guard zones
  /// and, up to 1 MB, its inputs.
  Status PoisonOutput(int index = 0);

  /// Compares the output with the double-precision product, as a kernel with `accumulator` may
  /// compute it. Small products are compared whole;
  /// of large ones 16384 elements in 64 sampled rows or fewer, the edges of tiles among them, and
  /// the whole output is scanned for poison. The bound of an element is derived from k and the
  /// formats (docs/numerics.md); with Fill::kIntegers it is one rounding to the output type.
  Result<ErrorReport> Compare(int index = 0, const Accumulator& accumulator = {}) const;

  /// The output of a set as it lies in memory, D's bytes line by line; behind each row of a
  /// quantised D the scales of that row.
  Result<std::vector<std::byte>> OutputBytes(int index = 0) const;

 private:
  struct Impl;
  explicit ScratchProblem(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Bytes that one pass over the problem must move at least: A, B and their scales once, D once,
/// C when it is read.
double MinimumBytes(const GemmDesc& desc) noexcept;

/// 2 m n k num.
double Operations(const GemmDesc& desc) noexcept;

/// Microseconds of one call of `launch`, complete on the device when it ends. The one timing
/// routine: the steady clock on the CPU. Errors: what `launch` returns; INTERNAL when it
/// throws.
Result<double> TimeLaunchUs(const DeviceInfo& device, const std::function<Status()>& launch);

}  // namespace culet
