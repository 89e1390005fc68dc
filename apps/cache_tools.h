// culet cache merge, diff, verify and gc.
#pragma once

#include "culet/dispatch_cache.h"
#include "options.h"
#include "output.h"

namespace culet::cli {

/// A record's kernel with its parameters: "cpu_simd/skinny/m8n3 splits 2".
std::string ShownKernel(const CacheFile::Record& record);

/// A record as an object, all of it.
Json ToJson(const CacheFile::Record& record);

/// `cache`: the command that these are under.
void AddCacheTools(const Command& cache);

}  // namespace culet::cli
