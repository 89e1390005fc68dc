// How the sums of ranks' GPUs are made: by their size, as it was measured, or as is usual.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "culet/status.h"
#include "culet/types.h"

namespace culet {

/// Sizes are bytes of one rank's values on the wire. Larger sums go through NCCL, and without it in
/// two shots.
struct ExchangeChoice {
  /// float32; or bfloat16, which halves what crosses. Each summand is then off by at most 2^-8 of
  /// its magnitude, and in two shots the sum by 2^-8 of its own once more, so that a value's last
  /// bits depend on how many rows are summed beside it.
  DataType wire = DataType::kFloat32;
  std::int64_t push_bytes = 0;      ///< up to so many: each rank sends all others its values
  std::int64_t two_shot_bytes = 0;  ///< up to so many: a rank sums a part and sends all others that
  bool measured = false;
  friend bool operator==(const ExchangeChoice&, const ExchangeChoice&) = default;
};

/// The largest sum of two shots that is one launch: larger ones are several.
inline constexpr std::int64_t kMostTwoShotBytes = std::int64_t{32} << 20;

/// "bfloat16, a push to 8 MiB, two shots to 64 MiB, then NCCL (measured)".
std::string ToString(const ExchangeChoice& choice);

/// That of so many ranks where nothing was measured: a push where it sends little more than any
/// other way, with the time of NCCL at the bound on two H200s.
ExchangeChoice UsualExchange(int ranks, DataType wire = DataType::kFloat32);

/// What one size took, in microseconds; below 0: not measured.
struct ExchangeTimes {
  std::int64_t bytes = 0;  ///< on the wire
  double push = -1, two_shots = -1, nccl = -1;
};

/// The bounds with which all sizes together take least, each relative to its fastest way.
/// Requires: ascending sizes. Without a time NCCL is not there.
ExchangeChoice ChooseExchange(std::span<const ExchangeTimes> times, DataType wire);

/// The choice for so many ranks with GPUs of a device class (DeviceInfo) that a cache file, or one
/// of the layers below it, keeps. An empty path is no file. None: it was not measured there, or no
/// file can be read.
std::optional<ExchangeChoice> FindExchange(const std::string& cache_path,
                                           const std::string& device_class, int ranks,
                                           DataType wire);

/// Puts it into the file, in the place of one for the same. Errors: as CacheFile::Save.
Status SaveExchange(const std::string& cache_path, const std::string& device_class, int ranks,
                    const ExchangeChoice& choice);

}  // namespace culet
