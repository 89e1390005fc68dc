// A oneDNN for tests: the part of its C interface that culet calls, products by a plain loop.
// FAKE_ONEDNN in the environment makes it one that culet must refuse, or that fails in use;
// FAKE_ONEDNN_TRACE names a file that it leaves when it is loaded.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "kernels/onednn/api.h"

namespace {

bool Is(const char* fault) {
  const char* given = std::getenv("FAKE_ONEDNN");
  return given != nullptr && std::strcmp(given, fault) == 0;
}

// Leaves a file that tells that the library was loaded.
[[maybe_unused]] const bool g_traced = [] {
  const char* trace = std::getenv("FAKE_ONEDNN_TRACE");
  std::FILE* file = trace != nullptr ? std::fopen(trace, "w") : nullptr;
  return file != nullptr && std::fclose(file) == 0;
}();

// OpenMP's, of the calling thread. Among the program's own: LeakSanitizer fails on what threads have
// of a library that was loaded after them.
[[gnu::tls_model("initial-exec")]] thread_local int g_threads = 5;

float Load(const void* from, int type, std::int64_t i) {
  if (type == culet::onednn::kFloat32) return static_cast<const float*>(from)[i];
  const std::uint32_t upper = static_cast<const std::uint16_t*>(from)[i];
  return std::bit_cast<float>(upper << 16);
}

void Store(void* to, int type, std::int64_t i, float value) {
  if (type == culet::onednn::kFloat32) {
    static_cast<float*>(to)[i] = value;
    return;
  }
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t even = bits + 0x7fff + (bits >> 16 & 1);
  static_cast<std::uint16_t*>(to)[i] = static_cast<std::uint16_t>(even >> 16);
}

}  // namespace

namespace culet::onednn {

struct MemoryDescObject {
  std::int64_t sizes[2], strides[2];
  int type;
  std::size_t bytes;
};
struct EngineObject {};
struct StreamObject {};
struct AttributesObject {
  int scratchpad_mode = 0;
};
struct PrimitiveDescObject {
  MemoryDescObject a, b, d, scratchpad;
};
struct PrimitiveObject {
  PrimitiveDescObject desc;
};
struct MemoryObject {
  void* data;
};

}  // namespace culet::onednn

namespace {

// Of a scratchpad that depends on the strides of single rows and columns.
std::size_t OfLines(const culet::onednn::MemoryDescObject& a,
                    const culet::onednn::MemoryDescObject& b) {
  std::int64_t strides = 0;
  for (const auto* desc : {&a, &b}) {
    for (int axis = 0; axis < 2; ++axis) {
      if (desc->sizes[axis] == 1) strides += desc->strides[axis];
    }
  }
  return static_cast<std::size_t>(64 * strides);
}

}  // namespace

using namespace culet::onednn;  // NOLINT

extern "C" {

const Version* dnnl_version() {
  static Version version{3, 9, 1, "fake", kOpenMp, 0};
  version.major = Is("old") ? 2 : Is("new") ? 4 : 3;
  version.cpu_runtime = Is("tbb") ? kTbb : kOpenMp;
  return &version;
}
int dnnl_get_effective_cpu_isa() { return Is("avx2") ? kIsaAvx2 : kIsaAmx; }
int dnnl_set_max_cpu_isa(int) { return 0; }
int dnnl_engine_create(Engine* engine, int, std::size_t) {
  if (Is("engine")) return 5;
  static EngineObject one;
  *engine = &one;
  return 0;
}
int dnnl_stream_create(Stream* stream, Engine, unsigned) {
  *stream = new StreamObject;
  return 0;
}
int dnnl_stream_destroy(Stream stream) {
  delete stream;
  return 0;
}
int dnnl_memory_desc_create_with_strides(MemoryDesc* desc, int, const std::int64_t* sizes, int type,
                                         const std::int64_t* strides) {
  *desc = new MemoryDescObject{{sizes[0], sizes[1]}, {strides[0], strides[1]}, type, 0};
  return 0;
}
int dnnl_memory_desc_destroy(MemoryDesc desc) {
  delete desc;
  return 0;
}
std::size_t dnnl_memory_desc_get_size(MemoryDesc desc) { return desc->bytes; }
int dnnl_primitive_attr_create(Attributes* attributes) {
  *attributes = new AttributesObject;
  return 0;
}
int dnnl_primitive_attr_set_scratchpad_mode(Attributes attributes, int mode) {
  attributes->scratchpad_mode = mode;
  return 0;
}
int dnnl_primitive_attr_destroy(Attributes attributes) {
  delete attributes;
  return 0;
}
int dnnl_matmul_primitive_desc_create(PrimitiveDesc* pd, Engine, MemoryDesc a, MemoryDesc b,
                                      MemoryDesc, MemoryDesc d, Attributes attributes) {
  if (Is("refuse")) return 3;  // dnnl_unimplemented
  if (attributes->scratchpad_mode != kUserScratchpad || g_threads != 1) return 2;
  // A pitch that is not tight may want more.
  const bool padded = b->strides[0] + b->strides[1] - 1 > b->sizes[0];
  const std::size_t bytes = Is("scratchpad") && padded ? 1 << 20
                            : Is("lines")              ? OfLines(*a, *b)
                                                       : 300;
  *pd = new PrimitiveDescObject{*a, *b, *d, {{}, {}, 0, bytes}};
  return 0;
}
MemoryDesc dnnl_primitive_desc_query_md(PrimitiveDesc pd, int what, int) {
  return what == kQueryScratchpad ? &pd->scratchpad : nullptr;
}
int dnnl_primitive_desc_destroy(PrimitiveDesc pd) {
  delete pd;
  return 0;
}
int dnnl_primitive_create(Primitive* primitive, PrimitiveDesc pd) {
  if (Is("create")) return kOutOfMemory;
  *primitive = new PrimitiveObject{*pd};
  return 0;
}
int dnnl_primitive_destroy(Primitive primitive) {
  delete primitive;
  return 0;
}
int dnnl_memory_create(Memory* memory, MemoryDesc, Engine, void* data) {
  *memory = new MemoryObject{data};
  return 0;
}
int dnnl_memory_destroy(Memory memory) {
  delete memory;
  return 0;
}
#ifndef FAKE_ONEDNN_WITHOUT_EXECUTE
int dnnl_primitive_execute(Primitive primitive, Stream, int count, const Argument* arguments) {
  if (Is("execute")) return 5;
  if (g_threads != 1) return 2;
  void* data[128] = {};
  for (int i = 0; i < count; ++i) data[arguments[i].index] = arguments[i].memory->data;
  const auto& [a, b, d, scratchpad] = primitive->desc;
  if (data[kArgScratchpad] == nullptr) return 2;
  std::memset(data[kArgScratchpad], 0x77, scratchpad.bytes);
  for (std::int64_t r = 0; r < d.sizes[0]; ++r) {
    for (std::int64_t c = 0; c < d.sizes[1]; ++c) {
      float sum = 0;
      for (std::int64_t k = 0; k < a.sizes[1]; ++k) {
        sum += Load(data[kArgSource], a.type, r * a.strides[0] + k * a.strides[1]) *
               Load(data[kArgWeights], b.type, k * b.strides[0] + c * b.strides[1]);
      }
      Store(data[kArgDestination], d.type, r * d.strides[0] + c * d.strides[1], sum);
    }
  }
  return 0;
}
#endif

#ifndef FAKE_ONEDNN_WITHOUT_OPENMP
int omp_get_max_threads() { return g_threads; }
void omp_set_num_threads(int threads) { g_threads = threads; }
#endif

}  // extern "C"
