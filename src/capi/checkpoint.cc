// Files of checkpoints: GGUF's metadata, and quantised ones made from plain ones.
#include <cstdint>
#include <string>

#include "capi/guard.h"
#include "capi/text.h"
#include "culet/culet.h"
#include "culet/gguf.h"
#include "culet/quantize_checkpoint.h"

using culet::Status;
using culet::capi::Guarded;
using culet::capi::Null;
using culet::capi::WriteText;

culet_status culet_gguf_json(const char* path, char* text, size_t capacity, size_t* needed) {
  return Guarded([&]() -> Status {
    if (path == nullptr) return Null("path");
    const auto metadata = culet::GgufMetadataJson(path);
    if (!metadata.ok()) return metadata.status();
    return WriteText(*metadata, text, capacity, needed);
  });
}

culet_status culet_quantize_checkpoint(const char* folder, const char* out, const char* format,
                                       const char* const* keep, int32_t keep_count,
                                       const int32_t* stop) {
  return Guarded([&]() -> Status {
    if (folder == nullptr) return Null("folder");
    if (out == nullptr) return Null("out");
    if (format == nullptr) return Null("format");
    const auto parsed = culet::ParseCheckpointFormat(format);
    if (!parsed.ok()) return parsed.status();
    culet::QuantizeCheckpointOptions options;
    options.format = *parsed;
    if (keep_count < 0) {
      return Status(culet::StatusCode::kInvalidArgument,
                    "keep_count is " + std::to_string(keep_count) + "; it must be >= 0");
    }
    if (keep == nullptr && keep_count > 0) return Null("keep");
    for (std::int32_t i = 0; i < keep_count; ++i) {
      if (keep[i] == nullptr) return Null(("keep[" + std::to_string(i) + "]").c_str());
      options.keep.emplace_back(keep[i]);
    }
    if (stop != nullptr) {
      options.stop = [stop] { return *static_cast<const volatile int32_t*>(stop) != 0; };
    }
    return culet::QuantizeCheckpoint(folder, out, options).status();
  });
}
