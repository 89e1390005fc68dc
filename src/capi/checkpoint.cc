// Files of checkpoints: GGUF's metadata, and quantised ones made from plain ones.
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
                                       const int32_t* stop) {
  return Guarded([&]() -> Status {
    if (folder == nullptr) return Null("folder");
    if (out == nullptr) return Null("out");
    if (format == nullptr) return Null("format");
    const auto parsed = culet::ParseCheckpointFormat(format);
    if (!parsed.ok()) return parsed.status();
    culet::QuantizeCheckpointOptions options;
    options.format = *parsed;
    if (stop != nullptr) {
      options.stop = [stop] { return *static_cast<const volatile int32_t*>(stop) != 0; };
    }
    return culet::QuantizeCheckpoint(folder, out, options).status();
  });
}
