// The part of oneDNN's C interface, version 3, that culet calls. Declared here from its
// documentation, so that building culet needs no oneDNN: the library is looked for at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace culet::onednn {

// Opaque objects of the library.
using Engine = struct EngineObject*;
using Stream = struct StreamObject*;
using MemoryDesc = struct MemoryDescObject*;
using Attributes = struct AttributesObject*;
using PrimitiveDesc = struct PrimitiveDescObject*;
using Primitive = struct PrimitiveObject*;
using Memory = struct MemoryObject*;

/// dnnl_status_t: what every call returns that can fail.
inline constexpr int kSuccess = 0;
inline constexpr int kOutOfMemory = 1;

inline constexpr int kCpuEngine = 1;           ///< dnnl_cpu
inline constexpr unsigned kDefaultStream = 1;  ///< dnnl_stream_default_flags
inline constexpr int kUserScratchpad = 1;      ///< dnnl_scratchpad_mode_user
inline constexpr int kQueryScratchpad = 136;   ///< dnnl_query_scratchpad_md
inline constexpr int kBfloat16 = 2;            ///< dnnl_bf16
inline constexpr int kFloat32 = 3;             ///< dnnl_f32

/// DNNL_ARG_*: what an argument of a product is.
inline constexpr int kArgSource = 1;
inline constexpr int kArgDestination = 17;
inline constexpr int kArgWeights = 33;
inline constexpr int kArgScratchpad = 80;

/// DNNL_RUNTIME_*: the threads that the library was built for.
inline constexpr unsigned kSequential = 1;
inline constexpr unsigned kOpenMp = 2;
inline constexpr unsigned kTbb = 4;
inline constexpr unsigned kThreadPool = 8;

/// dnnl_cpu_isa_t: sets of bits, each with those of what it includes.
inline constexpr int kIsaSse41 = 0x1;
inline constexpr int kIsaAvx2 = 0x7;
inline constexpr int kIsaAvx512Bf16 = 0xe7;
inline constexpr int kIsaAmx = 0xfef;

struct Version {
  int major, minor, patch;
  const char* hash;
  unsigned cpu_runtime, gpu_runtime;
};

struct Argument {
  int index;
  Memory memory;
};

/// The functions, under their names without dnnl_. Matrices have two dimensions; strides are in
/// elements.
struct Api {
  const Version* (*version)();
  int (*get_effective_cpu_isa)();
  int (*set_max_cpu_isa)(int isa);
  int (*engine_create)(Engine*, int kind, std::size_t index);
  int (*stream_create)(Stream*, Engine, unsigned flags);
  int (*stream_destroy)(Stream);
  int (*memory_desc_create_with_strides)(MemoryDesc*, int dimensions, const std::int64_t* sizes,
                                         int type, const std::int64_t* strides);
  int (*memory_desc_destroy)(MemoryDesc);
  std::size_t (*memory_desc_get_size)(MemoryDesc);
  int (*primitive_attr_create)(Attributes*);
  int (*primitive_attr_set_scratchpad_mode)(Attributes, int mode);
  int (*primitive_attr_destroy)(Attributes);
  int (*matmul_primitive_desc_create)(PrimitiveDesc*, Engine, MemoryDesc source, MemoryDesc weights,
                                      MemoryDesc bias, MemoryDesc destination, Attributes);
  MemoryDesc (*primitive_desc_query_md)(PrimitiveDesc, int what, int index);
  int (*primitive_desc_destroy)(PrimitiveDesc);
  int (*primitive_create)(Primitive*, PrimitiveDesc);
  int (*primitive_execute)(Primitive, Stream, int count, const Argument* arguments);
  int (*primitive_destroy)(Primitive);
  int (*memory_create)(Memory*, MemoryDesc, Engine, void* data);
  int (*memory_destroy)(Memory);

  // OpenMP's own: the threads of the next parallel region that the calling thread starts. Null
  // where the library is built without threads.
  int (*omp_get_max_threads)();
  void (*omp_set_num_threads)(int threads);
};

}  // namespace culet::onednn
