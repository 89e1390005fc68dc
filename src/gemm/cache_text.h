// The text of a cache: a header line, then one record a line. Streams and files share it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "culet/status.h"

namespace culet {

/// The version of the header that is written, and the newest that is read.
inline constexpr int kCacheFormatVersion = 1;

/// Whether `text` is a cache: blank, or headed by a line that says so.
/// Errors: DATA_LOSS when it is something else, UNSUPPORTED when its version is newer.
Status CheckCacheHeader(std::string_view text);

/// Calls `visit(line, text)` for each line that is neither blank nor a header; `line` counts from
/// 1, `text` is without line end. Requires: CheckCacheHeader.
void ForEachCacheLine(std::string_view text,
                      const std::function<void(int line, std::string_view text)>& visit);

struct CacheText {
  std::string text;
  int records = 0;
};

/// A header, then the records sorted as people count and without repetitions.
CacheText ComposeCacheText(std::vector<std::string_view> records);

}  // namespace culet
