// A cache record: one line of text <-> what it says. docs/cache-format.md describes the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "culet/dispatch_cache.h"

namespace culet {

enum class RecordState : std::uint8_t {
  kSound,
  kOtherVersion,  ///< the checksum is right, but it has fields or names that are unknown here
  kDamaged,
};

struct ParsedRecord {
  RecordState state = RecordState::kDamaged;
  CacheFile::Record record;  ///< `damage` says what is wrong unless kSound
};

/// The line of one entry, without a line end. The same entry always gives the same bytes.
/// Requires: IsRecordable and spec.kernel.
std::string WriteRecord(std::string_view device_class, const GemmDesc& desc,
                        const LaunchSpec& spec);

/// Reads a line; any bytes are allowed.
ParsedRecord ReadRecord(std::string_view line);

/// A line that names a device's problem without a launch, and its reader.
std::string WriteProblem(std::string_view device_class, const GemmDesc& desc);
ParsedRecord ReadProblem(std::string_view line);

/// A record of another kind: `text` begins an object with members, and gets its end.
std::string SealRecord(std::string text);

/// The part of a line that states device class and problem, or nothing when the checksum is wrong.
/// Lines of equal problems have equal keys, so files are merged without reading the records.
std::string_view RecordKey(std::string_view line) noexcept;

}  // namespace culet
