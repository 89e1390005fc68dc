// What may stand in a cache, what this process can use of it, and which of two entries wins.
#pragma once

#include <cstdint>

#include "culet/cache_tools.h"
#include "culet/dispatch_cache.h"

namespace culet {

/// Bounds on what a record may ask of a launch; more is not a tuning result.
inline constexpr int kMaxSwizzle = 16;
inline constexpr int kMaxSplits = 4096;
inline constexpr int kMaxVariant = 4095;

inline constexpr std::int64_t kMaxWhen = 253402300799;  // the end of the year 9999

/// Finite and not negative.
bool IsTime(double us) noexcept;

/// Whether every field of the problem and the spec has a value that a record may hold.
bool IsRecordable(const GemmDesc& desc, const LaunchSpec& spec) noexcept;

/// What this process can do with a sound record.
struct ResolvedRecord {
  Usability usability = Usability::kUnknownKernel;
  LaunchSpec spec;  ///< set when kUsable
};
ResolvedRecord Resolve(const CacheFile::Record& record, const DispatchCache& cache);

/// Whether the kernel takes the problem with this swizzle, these splits and this variant today.
/// Requires: spec.kernel.
bool IsLaunchable(const GemmDesc& desc, const LaunchSpec& spec);

/// <0, 0 or >0 as `a` loses to, equals or wins over `b`: measured beats predicted, a sound
/// measurement a noisy one, then the newer wins, then the faster. A total order over all fields:
/// merging gives the same in any order.
int ComparePrecedence(const LaunchSpec& a, const LaunchSpec& b) noexcept;
/// The same of records, whose kernels need not be known here.
int ComparePrecedence(const CacheFile::Record& a, const CacheFile::Record& b) noexcept;
/// The same of two layers: the higher one wins where both are measured and both sound, or both not.
int ComparePrecedence(const LaunchSpec& a, CacheLayer layer_a, const LaunchSpec& b,
                      CacheLayer layer_b) noexcept;

}  // namespace culet
