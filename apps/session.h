// What a command works with: the device's engine, and the cache file that it reads and saves.
#pragma once

#include <optional>
#include <string>

#include "culet/cache_layers.h"
#include "culet/dispatch_cache.h"
#include "culet/gemm.h"
#include "culet/status.h"
#include "options.h"

namespace culet::cli {

/// Options that every command has.
struct CommonArgs {
  bool json = false;
  int threads = 0;  ///< 0: all that the process may use
  std::string device = "cpu";
  std::string providers;  ///< as in GemmOptions

  void AddTo(const Command& command);
  /// Puts --threads into force. Errors: as SetHostThreads.
  Status Apply() const;
};

/// The option --budget SECONDS, more than 0.
void AddBudget(const Command& command, double* seconds, const std::string& description);

/// The option --cache of the commands that use one.
struct CacheArgs {
  std::string path;
  void AddTo(const Command& command);
};

struct Session {
  Gemm gemm;
  std::optional<CacheFile> file;  ///< none when the cache is off
  bool file_is_readable = true;   ///< false: told on stderr already
  std::string saved_in;           ///< where all results are since the last SaveResults; else empty
};

/// Makes the engine and, with `cache`, loads its cache. What is wrong with the file is told once
/// on stderr and is no error: its good records are used.
Result<Session> OpenSession(const CommonArgs& common, const CacheArgs* cache,
                            const HardwareRates& rates = {});

/// Says once whose lock is waited for, and ends the wait on Ctrl-C.
CacheFile::SaveOptions WaitAloud();

/// Whether results can be kept, found out before any is measured. Errors: as CacheFile::CheckSave.
Status CheckThatResultsCanBeSaved(const Session& session);

/// Merges the engine's cache into the file. When that fails, the results go to a file in a folder
/// of their own below the temporary one, from then on; stderr says so and the error is returned.
Status SaveResults(Session& session);

}  // namespace culet::cli
