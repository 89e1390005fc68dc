/* The oldest header whose programs this library serves, frozen: never edit it. culet_c_test is
 * compiled against it, too. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#if defined(_WIN32)
#define CULET_API
#else
#define CULET_API __attribute__((visibility("default")))
#endif
#ifdef __cplusplus
extern "C" {
#endif
typedef enum culet_status {
  CULET_OK = 0,
  CULET_INVALID_ARGUMENT = 1,
  CULET_UNSUPPORTED = 2,
  CULET_OUT_OF_RANGE = 3,
  CULET_RESOURCE_EXHAUSTED = 4,
  CULET_FAILED_PRECONDITION = 5,
  CULET_NOT_FOUND = 6,
  CULET_DATA_LOSS = 7,
  CULET_IO = 8,
  CULET_WRONG_RESULT = 9,
  CULET_INTERNAL = 10
} culet_status;
CULET_API const char* culet_status_name(culet_status status);
CULET_API const char* culet_last_error(void);
CULET_API const char* culet_version(void);
enum {
  CULET_NULL = 0,
  CULET_FLOAT32 = 1,
  CULET_FLOAT16 = 2,
  CULET_BFLOAT16 = 3,
  CULET_FLOAT8_E4M3 = 4,
  CULET_FLOAT8_UE8M0 = 5
};
enum {
  CULET_COL_MAJOR = 0,
  CULET_ROW_MAJOR = 1
};
enum {
  CULET_QUANT_NONE = 0,
  CULET_QUANT_K = 1,
  CULET_QUANT_B = 2,
  CULET_QUANT_TENSOR = 3,
  CULET_QUANT_ROW = 4
};
enum {
  CULET_ACCUMULATE_PROMOTED = 0,
  CULET_ACCUMULATE_FAST = 1
};
enum {
  CULET_DETERMINISM_FAST = 0,
  CULET_DETERMINISM_REPEATABLE = 1,
  CULET_DETERMINISM_BATCH_INVARIANT = 2
};
enum {
  CULET_BIAS_N = 0,
  CULET_BIAS_M = 1
};
typedef struct culet_matrix {
  int32_t type;
  int32_t order;
  int32_t rows;
  int32_t cols;
  int64_t ld;
  int32_t pack;
  int32_t num;
  const int32_t* offsets;
  const int32_t* idxs;
  uint64_t reserved[4];
} culet_matrix;
typedef struct culet_problem {
  size_t struct_size;
  culet_matrix a, u, b, v, c, d;
  const void *A, *U, *B, *V, *C;
  void* D;
  float beta;
  int32_t quant_a, group_a;
  int32_t quant_b, group_b;
  int32_t batch_dim;
  const void* bias;
  int32_t bias_type;
  int32_t bias_axis;
  int32_t pdl;
  int32_t sm_budget;
  int32_t accumulate;
  int32_t determinism;
} culet_problem;
typedef struct culet_device {
  size_t struct_size;
  char name[128];
  char device_class[128];
  int32_t arch;
  int32_t ordinal;
  int32_t units;
  uint64_t cache_bytes;
  uint64_t memory_bytes;
} culet_device;
CULET_API culet_status culet_device_count(int32_t* count);
CULET_API culet_status culet_device_get(int32_t index, culet_device* device);
typedef struct culet_engine culet_engine;
typedef struct culet_engine_options {
  size_t struct_size;
  const char* device;
  const char* cache_path;
} culet_engine_options;
CULET_API culet_status culet_engine_create(const culet_engine_options* options,
                                           culet_engine** engine);
CULET_API void culet_engine_destroy(culet_engine* engine);
CULET_API culet_status culet_engine_device(const culet_engine* engine, culet_device* device);
CULET_API const char* culet_engine_cache_note(const culet_engine* engine);
CULET_API culet_status culet_engine_save(const culet_engine* engine, const char* path);
typedef struct culet_tune_options {
  size_t struct_size;
  double budget_s;
  int32_t rounds;
  int32_t max_candidates;
  int32_t force;
  void* stream;
  const int32_t* stop;
} culet_tune_options;
typedef struct culet_choice {
  size_t struct_size;
  char kernel[128];
  int32_t swizzle;
  int32_t splits;
  int32_t measured;
  int32_t measurements;
  double time_us;
  double baseline_us;
  int32_t serial;
} culet_choice;
CULET_API culet_status culet_tune(culet_engine* engine, const culet_problem* problem,
                                  const culet_tune_options* options, culet_choice* choice);
CULET_API culet_status culet_explain(culet_engine* engine, const culet_problem* problem, char* text,
                                     size_t capacity, size_t* needed);
typedef struct culet_plan culet_plan;
CULET_API culet_status culet_plan_create(culet_engine* engine, const culet_problem* problem,
                                         culet_plan** plan);
CULET_API void culet_plan_destroy(culet_plan* plan);
CULET_API culet_status culet_plan_choice(const culet_plan* plan, culet_choice* choice);
typedef struct culet_workspace_size {
  size_t struct_size;
  uint64_t barriers, partials, tensormaps;
} culet_workspace_size;
CULET_API culet_status culet_plan_workspace(const culet_plan* plan, culet_workspace_size* size);
CULET_API culet_status culet_workspace_bytes(const culet_workspace_size* size, uint64_t* bytes);
typedef struct culet_workspace culet_workspace;
CULET_API culet_status culet_workspace_create(culet_engine* engine,
                                              const culet_workspace_size* size, void* buffer,
                                              uint64_t bytes, void* stream,
                                              culet_workspace** workspace);
CULET_API void culet_workspace_destroy(culet_workspace* workspace);
CULET_API culet_status culet_launch(const culet_plan* plan, const void* A, const void* U,
                                    const void* C, void* D, float alpha, float beta,
                                    culet_workspace* workspace, void* stream);
CULET_API culet_status culet_capture_id(const culet_engine* engine, void* stream, uint64_t* id);
#ifdef __cplusplus
}
#endif
