// The caches below the user's: tables shipped with the library, and the site's file.
#pragma once

#include <string>
#include <vector>

#include "culet/dispatch_cache.h"
#include "culet/status.h"

namespace culet {

/// One file below the user's.
struct LowerLayer {
  CacheLayer layer = CacheLayer::kShipped;
  std::string path;  ///< where it lies, or would lie
  bool exists = false;
};

/// The files that serve a device class, lowest first; whether they are there is said in each.
///
/// Shipped: `<device class, with _ for />.jsonl` in the folder `tuned` beside the library, or in
/// share/culet/tuned of the prefix that it is installed in; the environment's CULET_TUNED names
/// another folder, and `off` none. Site: the environment's CULET_SITE_CACHE, else
/// /etc/culet/dispatch.jsonl; `off` is none.
std::vector<LowerLayer> LowerLayers(const std::string& device_class);

/// The name of a shipped table: "cuda_900_132sm_1980mhz_l2-60m_mem150g_4800gbps.jsonl".
std::string TableName(const std::string& device_class);

/// What became of a file that is there.
struct LoadedLayer {
  LowerLayer file;
  Status status;  ///< as CacheFile::Load
  ImportReport report;
};

/// Loads what is there of LowerLayers(cache.device_class()) into the cache. A file that cannot be
/// read is no reason to do without the others.
std::vector<LoadedLayer> LoadLowerLayers(DispatchCache& cache);

}  // namespace culet
