// DispatchCache: which LaunchSpec serves which problem. CacheFile: the same on disk, safely.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "culet/desc.h"
#include "culet/kernel.h"
#include "culet/status.h"

namespace culet {

/// Whose choice an entry is. Of two entries of one problem, both measured and both sound or both
/// noisy, the higher layer's counts, whichever is newer: what a user measured beats what his site
/// measured, and that what was shipped with the library.
enum class CacheLayer : std::uint8_t { kShipped = 0, kSite = 1, kUser = 2 };
const char* ToString(CacheLayer) noexcept;

/// What became of the records of an imported stream or file. Nothing but `used` entered the cache;
/// all others but the damaged ones are kept when a file is written again.
struct ImportReport {
  int used = 0;                ///< entered the cache, or equal to what it held
  int outdated = 0;            ///< valid, but the cache holds a newer or a measured entry
  int other_device = 0;        ///< of another device class
  int unknown_kernel = 0;      ///< of a kernel id that is not registered here
  int unavailable = 0;         ///< of a kernel whose library is absent or left out
  int other_provider = 0;      ///< of a kernel whose library has another version today
  int infeasible = 0;          ///< the kernel refuses the problem, swizzle, splits or variant today
  int other_version = 0;       ///< intact, but with fields or names that this version does not know
  int damaged = 0;             ///< unreadable, with a wrong checksum or with impossible values
  int first_damaged_line = 0;  ///< 1-based; 0 when none
  std::string header_error;    ///< why the whole stream was refused; empty when it was read
  /// One line for people, e.g. "12 used, 3 of another device class, 1 damaged (line 7)".
  std::string ToString() const;
};

/// Sorted map from GemmDesc to LaunchSpec. Safe for concurrent readers and writers.
class DispatchCache {
 public:
  /// `kernels` resolve the ids of imported records; they must outlive the cache. Records are
  /// written for, and taken from, `device_class` alone; empty means HostDevice().device_class.
  explicit DispatchCache(std::vector<Kernel*> kernels, std::string device_class = {});
  ~DispatchCache();
  DispatchCache(DispatchCache&&) noexcept;
  DispatchCache& operator=(DispatchCache&&) noexcept;

  /// Makes one more kernel known, as if it had been in the constructor's list. Of two kernels with
  /// one id the first counts.
  void AddKernel(Kernel* kernel);

  /// The known kernel with this id, or null.
  Kernel* FindKernel(std::string_view id) const;

  /// The entry of the closest problem, all else equal, whose batch dimension is less than or equal
  /// to the query's. Its kernel may refuse the query's own batch: ask is_feasible, GetMaxSwizzle
  /// and GetMaxSplits before it is launched.
  std::optional<LaunchSpec> LowerBound(const GemmDesc& desc) const;

  /// The entry of exactly this problem.
  std::optional<LaunchSpec> Find(const GemmDesc& desc) const;

  /// The closest entries at or below and at or above the query's batch dimension, all else equal.
  struct Neighbours {
    std::optional<std::pair<GemmDesc, LaunchSpec>> below, above;
  };
  Neighbours FindNeighbours(const GemmDesc& desc) const;

  /// Returns whether anything changed. Measured beats predicted, a sound measurement a noisy one
  /// (IsNoisy), the user's layer the lower ones, a newer one replaces an older one, and of two of
  /// the same second the faster stays. The entry is of the user's layer.
  /// Refused: a spec whose kernel is null, not in the list or not able to run it, and values that
  /// no record may hold (m = 0, a negative time).
  bool Insert(const GemmDesc& desc, const LaunchSpec& spec);

  /// Removes an entry; whether there was one.
  bool Erase(const GemmDesc& desc);

  /// Writes a header and one JSON record a line, sorted; the number of records, or -1 when the
  /// stream failed. Texts may be concatenated.
  int Export(std::ostream& os) const;

  /// Merges what Export wrote, under Insert's rules; the number of records used. A refused record
  /// is a miss for that record alone; `report` (may be null) counts them by reason.
  int Import(std::istream& is, ImportReport* report = nullptr,
             CacheLayer layer = CacheLayer::kUser);

  std::size_t size() const;
  /// Rises with every change, so that what was derived from the cache can be kept until then.
  std::uint64_t generation() const noexcept;
  const std::string& device_class() const noexcept;
  /// Those of `least` and the layers above it.
  std::vector<std::pair<GemmDesc, LaunchSpec>> Entries(
      CacheLayer least = CacheLayer::kShipped) const;
  /// Whose the entry of exactly this problem is.
  std::optional<CacheLayer> LayerOf(const GemmDesc& desc) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A cache file: text, a header line with the format version, then one JSON record a line. Replaced
/// atomically (temporary file, fsync, rename) and merged under a lock that dies with its process,
/// on the file `<path>.lock`. Symbolic links are followed. An empty path is no file: Load finds
/// nothing and Save writes nothing. Safe for concurrent use. docs/cache-format.md has the details.
class CacheFile {
 public:
  /// Bounds on what is read: a larger file or line is not a cache.
  static constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
  static constexpr std::size_t kMaxLineBytes = std::size_t{64} << 10;

  explicit CacheFile(std::string path);

  /// `override_path` (the --cache argument) if not empty; else the environment's CULET_CACHE; else
  /// $XDG_CACHE_HOME/culet/dispatch.jsonl or ~/.cache/culet/dispatch.jsonl. "off" gives an empty
  /// path: no file. Errors: NOT_FOUND when there is neither a home nor a setting.
  static Result<std::string> DefaultPath(const std::string& override_path = {});

  /// Reads what the file holds for this cache's device class. A missing file is an empty one.
  /// Errors: DATA_LOSS (not a cache, too large), UNSUPPORTED (a newer version), IO.
  Result<ImportReport> Load(DispatchCache& cache, CacheLayer layer = CacheLayer::kUser) const;

  struct SaveOptions {
    /// Called ten times a second while another process has held the lock for more than a second,
    /// with its name ("process 123 (culet)") and the seconds waited; false, or an exception, gives
    /// up. May be null.
    std::function<bool(const std::string& holder, double waited_s)> on_wait;
    double timeout_s = 60;  ///< for the lock
  };

  /// Merges the cache's entries of the user's layer into the file; every other intact record in the
  /// file stays as it is, those of other devices and unknown kernels included. Measured beats
  /// predicted and newer beats older, as in Insert. Lines whose checksum is wrong move to
  /// `<path>.damaged`, which keeps the first megabyte of them. A file that would not change is not
  /// written. Returns the number of records that the file now holds, whatever their device or
  /// kernel. Errors: as Load, and nothing is written then; IO when the folder cannot be written or
  /// another process does not give the lock back.
  Result<int> Save(const DispatchCache& cache, const SaveOptions& options) const;
  Result<int> Save(const DispatchCache& cache) const { return Save(cache, SaveOptions()); }

  /// Whether Save could write, found out with the lock and a file beside this one that is removed
  /// again; the folder is made. Errors: as Save.
  Status CheckSave(const SaveOptions& options) const;

  const std::string& path() const noexcept { return path_; }

  /// One record as a listing shows it, whatever its device or kernel.
  struct Record {
    int line = 0;
    std::string device_class, kernel_id, problem, library_version;
    int swizzle = 0, splits = 1;
    bool serial = false;
    int variant = 0;
    std::string provider_version;  ///< of the library that computed; empty for own kernels
    double time_us = 0, spread_us = 0, baseline_us = 0;
    Origin origin = Origin::kPredicted;
    std::int64_t when = 0;
    std::string damage;  ///< why it cannot be read, e.g. "the checksum is wrong"; else empty
    GemmDesc desc;
  };
  /// Every record of the file but those of FindExchange. Errors: as Load, and NOT_FOUND for a
  /// missing file.
  Result<std::vector<Record>> List() const;

 private:
  std::string path_;
};

}  // namespace culet
