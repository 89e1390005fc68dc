// A cache record: one line of text <-> what it says. docs/cache-format.md describes the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "culet/dispatch_cache.h"

namespace culet {

/// Bounds on what a record may ask of a launch; more is not a tuning result.
inline constexpr int kMaxSwizzle = 16;
inline constexpr int kMaxSplits = 4096;

enum class RecordState : std::uint8_t {
  kSound,
  kOtherVersion,  ///< the checksum is right, but it has fields or names that are unknown here
  kDamaged,
};

struct ParsedRecord {
  RecordState state = RecordState::kDamaged;
  CacheFile::Record record;  ///< `damage` says what is wrong unless kSound
};

/// Whether every field of the problem and the spec has a value that a record may hold.
bool IsRecordable(const GemmDesc& desc, const LaunchSpec& spec) noexcept;

/// The line of one entry, without a line end. The same entry always gives the same bytes.
/// Requires: IsRecordable and spec.kernel.
std::string WriteRecord(std::string_view device_class, const GemmDesc& desc,
                        const LaunchSpec& spec);

/// Reads a line; any bytes are allowed.
ParsedRecord ReadRecord(std::string_view line);

/// The part of a line that states device class and problem, or nothing when the checksum is wrong.
/// Lines of equal problems have equal keys, so files are merged without reading the records.
std::string_view RecordKey(std::string_view line) noexcept;

/// What this process can do with a sound record.
enum class Usability : std::uint8_t { kUsable, kOtherDevice, kUnknownKernel, kInfeasible };

struct ResolvedRecord {
  Usability usability = Usability::kUnknownKernel;
  LaunchSpec spec;  ///< set when kUsable
};
ResolvedRecord Resolve(const CacheFile::Record& record, const DispatchCache& cache);

/// Whether the kernel takes the problem with this swizzle and these splits today.
/// Requires: spec.kernel.
bool IsLaunchable(const GemmDesc& desc, const LaunchSpec& spec);

/// <0, 0 or >0 as `a` loses to, equals or wins over `b`: measured beats predicted, then the newer
/// wins, then the faster. A total order over all fields: merging gives the same in any order.
int ComparePrecedence(const LaunchSpec& a, const LaunchSpec& b) noexcept;

}  // namespace culet
