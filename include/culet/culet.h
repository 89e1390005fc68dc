/* The C interface of culet: plan, launch, tune and explain matrix products, and run decoder models
 * made of them (culet/session.h, which comes with it). C99 and C++.
 *
 * D = alpha * (U.A)(V.B) + beta * C + bias, A (m, k), B (k, n), C and D (m, n). U and V are the
 * scales of A and B. A weight stored (n, k) with k contiguous is B in column-major order.
 *
 *   culet_engine* engine;
 *   if (culet_engine_create(NULL, &engine) != CULET_OK) puts(culet_last_error());
 *
 * Status: every function that can fail returns a culet_status and leaves its outputs untouched
 * then; culet_last_error() has the sentence. Nothing is thrown, printed or aborted.
 * Structs: a caller sets `struct_size` to sizeof of the struct and zeroes the rest; fields that a
 * newer header adds are 0 for an older caller, and 0 is always the default. A struct larger than
 * this library knows is refused when the unknown part is not all 0, and so is a `reserved` field.
 * Memory: device pointers for a CUDA engine, host pointers for the CPU's. The caller owns all of
 * it. Threads: engines and plans may be used from several threads at once; each concurrent stream
 * or captured graph needs a culet_workspace of its own. Destroying is up to one thread. */
#pragma once

#include "culet/c_base.h"
#include "culet/session.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {                 /* element types */
       CULET_NULL = 0, /* absent operand */
       CULET_FLOAT32 = 1,
       CULET_FLOAT16 = 2,
       CULET_BFLOAT16 = 3,
       CULET_FLOAT8_E4M3 = 4,  /* OCP E4M3: largest 448, no infinities */
       CULET_FLOAT8_UE8M0 = 5, /* a scale: 2^(byte - 127) */
       /* Two in a byte, the lower half first; rows (columns) start at whole bytes. */
       CULET_INT4 = 7,        /* -8 to 7 */
       CULET_UINT4 = 8,       /* 0 to 15 */
       CULET_FLOAT4_E2M1 = 9, /* OCP E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign */
       CULET_INT8 = 10        /* -128 to 127 */
};

enum { /* orders: element (r, c) at r + c * ld, or at r * ld + c */
       CULET_COL_MAJOR = 0,
       CULET_ROW_MAJOR = 1
};

enum { /* how a weight lies in memory: culet_matrix.pack of B */
       CULET_PACK_PLAIN = 0,
       CULET_PACK_PANELS64 =
           1 /* "k_major_n64": panels of 64 columns, each row of a panel contiguous */
};

enum { /* which elements share one scale */
       CULET_QUANT_NONE = 0,
       CULET_QUANT_K = 1,      /* `group` along k of one row of A, or of one column of B */
       CULET_QUANT_B = 2,      /* a block of group x group */
       CULET_QUANT_TENSOR = 3, /* one scale for the whole operand; group is 0 */
       CULET_QUANT_ROW = 4     /* one for each row of A, or each column of B; group is 0 */
};

enum { /* partial sums on tensor cores that keep fewer than 24 bits */
       CULET_ACCUMULATE_PROMOTED = 0, /* promoted to FP32 within k */
       CULET_ACCUMULATE_FAST = 1,     /* may stay in them over all of k */
       CULET_ACCUMULATE_FULL = 2      /* 24 bits or more throughout: they take no part */
};

enum { /* what happens to the sum before it is rounded and stored */
       CULET_EPILOGUE_NONE = 0,
       /* silu(gate) * up of columns as gate_order says; D has n / 2 columns, n % 16 == 0. */
       CULET_EPILOGUE_GATED_SILU = 1,
       /* The same, quantised: D is E4M3, its scales W have one element for 128 columns of a row. */
       CULET_EPILOGUE_GATED_SILU_QUANT = 2
};

enum { /* how the columns of gate and up lie in B, and in C and the bias */
       CULET_GATE_EIGHTS =
           0, /* groups of 16: eight of gate, then the eight of up that belong to them */
       CULET_GATE_HALVES = 1 /* all of gate, then all of up, as weights one behind the other */
};

enum { /* what holds between two runs */
       CULET_DETERMINISM_FAST = 0,
       CULET_DETERMINISM_REPEATABLE = 1,     /* same problem and machine, same bits */
       CULET_DETERMINISM_BATCH_INVARIANT = 2 /* a row's bits depend on that row, B and k alone */
};

enum { /* one bias value a column of D, or a row */
       CULET_BIAS_N = 0,
       CULET_BIAS_M = 1
};

/* Shape and placement of one operand; all 0 is an absent one. `rows` x `cols` is the logical
 * matrix whatever the order: A (m, k), B (k, n), C and D (m, n).
 * Scales of A, U: (1, 1) for CULET_QUANT_TENSOR, (m, 1) for CULET_QUANT_ROW, (m, ceil(k / group))
 * for CULET_QUANT_K; in row-major order as a quantiser leaves them (ld >= ceil(k / group)) or in
 * column-major order (ld >= m).
 * Scales of B, V: (1, 1), (1, n), or (ceil(k / group), ceil(n / group)) for CULET_QUANT_B; those of
 * a weight stored (n, k) usually lie as (ceil(n / group), ceil(k / group)) rows, which is V in
 * column-major order. */
typedef struct culet_matrix {
  int32_t type;
  int32_t order;
  int32_t rows;
  int32_t cols;
  int64_t ld;             /* elements between the starts of two rows (columns), > 0 */
  int32_t pack;           /* CULET_PACK_*: a packed B has the layout that culet_pack gives */
  int32_t num;            /* matrices in the batch; 0 is 1. One of A, B or C serves all of D's;
                             scales have their operand's num */
  const int32_t* offsets; /* group starts on the device; null: one matrix */
  const int32_t* idxs;    /* gathered rows on the device; null: all in order */
  int64_t batch_stride;   /* elements between two matrices; 0 where num is 1 */
  uint64_t reserved[3]; /* 0: room for what a newer header knows, as this struct lies in another */
} culet_matrix;

/* One product. The pointers A, U, C and D may be null for planning, tuning and explaining; they
 * are then taken as aligned to 16 bytes. B and V are bound by a plan. */
typedef struct culet_problem {
  size_t struct_size;
  culet_matrix a, u, b, v, c, d;
  const void *A, *U, *B, *V, *C;
  void* D;
  float beta; /* not 0: C is read; the factor itself comes with each launch */
  int32_t quant_a, group_a;
  int32_t quant_b, group_b;
  int32_t batch_dim; /* the axis that varies between calls: 0 is m, 1 is n */
  const void* bias;
  int32_t bias_type;
  int32_t bias_axis;
  int32_t pdl;       /* not 0 promises that the kernel before does not write B or V */
  int32_t sm_budget; /* at most so many SMs (CPU: threads); 0 is all */
  int32_t accumulate;
  int32_t determinism;
  int32_t epilogue;
  int32_t gate_order; /* how gate and up lie in B where the epilogue pairs columns; else 0 */
  /* Zero points, (a - zero) * scale: laid out as the operand's scales, in elements of a type of
   * their own. Null and CULET_NULL: none. A plan binds them, as it binds B, V and W. */
  const void *zero_a, *zero_b;
  int32_t zero_a_type, zero_b_type;
  /* Where an epilogue that quantises leaves the scales of D: FP32, (m, ceil(columns of D / 128)).
   */
  culet_matrix w;
  void* W;
  int32_t quant_d, group_d; /* CULET_QUANT_K and 128 for CULET_EPILOGUE_GATED_SILU_QUANT */
} culet_problem;

/* One device of the machine. */
typedef struct culet_device {
  size_t struct_size;
  char name[128];         /* for people */
  char device_class[128]; /* what decides speed; the key of caches */
  int32_t arch;           /* 0: the host; 900: compute capability 9.0 */
  int32_t ordinal;        /* CUDA device number; -1 for the host */
  int32_t units;          /* threads in use, or multiprocessors */
  uint64_t cache_bytes;   /* last-level cache */
  uint64_t memory_bytes;
} culet_device;

/* Threads that the CPU's kernels use together with the caller, in the whole process; 1 to 1024. By
 * default CULET_THREADS of the environment, else all that the process may use. Their number is part
 * of a device's class: set it before engines are created, and not while a product or a step runs.
 */
CULET_API culet_status culet_set_threads(int32_t threads);
CULET_API culet_status culet_threads(int32_t* threads);

/* The number of devices: the host, number 0, and every CUDA device. */
CULET_API culet_status culet_device_count(int32_t* count);

/* Errors: INVALID_ARGUMENT unless 0 <= index < count. */
CULET_API culet_status culet_device_get(int32_t index, culet_device* device);

/* Texts: functions that give one write at most `capacity` bytes to `text`, the final 0 included,
 * and the bytes of the whole text with its 0 to `needed` (may be null). `text` may be null when
 * capacity is 0, to ask how much there is. JSON is in UTF-8, one value. */

/* A list of all devices: "device" ("cpu", "cuda:0"), "name", "class", "arch", "units",
 * "cache_bytes", "memory_bytes". */
CULET_API culet_status culet_devices_json(char* text, size_t capacity, size_t* needed);

/* The products of a decoder model, from a config.json or the folder of one: "architecture",
 * "model_type", "format" (or null), and "products", a list of "name", "n", "k", "layers",
 * "experts", "active_experts". Fused as engines run them. Errors: NOT_FOUND, IO, DATA_LOSS,
 * INVALID_ARGUMENT, UNSUPPORTED for an unknown architecture. */
CULET_API culet_status culet_products_json(const char* path, char* text, size_t capacity,
                                           size_t* needed);

/* The metadata of a GGUF file, or of the only one of a folder without config.json: an object by
 * the file's keys; null for a path that means no such file. Errors: NOT_FOUND, IO, DATA_LOSS,
 * UNSUPPORTED for a version that is not known, INVALID_ARGUMENT for a folder of several. */
CULET_API culet_status culet_gguf_json(const char* path, char* text, size_t capacity,
                                       size_t* needed);

/* Writes the folder `out`, new or empty: the checkpoint `folder` with its linear layers rounded to
 * the nearest codes of `format`, "u4", "u4-asymmetric", "fp8-row" or "fp8-block", in the form of
 * compressed-tensors, and the files beside it. `out` is there whole or not at all. Layers that one
 * of the `keep_count` texts of `keep` names stay: the name of a module, its first or its last
 * parts, or "re:" and a regular expression that its beginning matches. `stop`, which may be null,
 * is looked at before each tensor; other than 0 ends it.
 * Errors: INVALID_ARGUMENT, also for a checkpoint that is quantised already and a text of `keep`
 * that names no layer; NOT_FOUND, IO, DATA_LOSS, UNSUPPORTED for a model that is not known, or
 * tensors of all experts' weights that `keep` does not name; FAILED_PRECONDITION when stopped. */
CULET_API culet_status culet_quantize_checkpoint(const char* folder, const char* out,
                                                 const char* format, const char* const* keep,
                                                 int32_t keep_count, const int32_t* stop);

typedef struct culet_engine_options {
  size_t struct_size;
  const char* device;     /* "cpu", "cuda" or "cuda:N"; null is "cpu" */
  const char* cache_path; /* null: the environment's CULET_CACHE, else the user's cache file;
                             "off": no file */
  const char* providers;  /* whose kernels compete, e.g. "own" or "own,cublaslt"; null or "": the
                             environment's CULET_PROVIDERS, else all. The reference always does */
  const char* record;     /* a file to which each problem is appended whose choice was not measured,
                             for `culet tune --from`; null or "": the environment's CULET_RECORD,
                             else none; "off": none */
} culet_engine_options;

/* Opens a device and reads the caches: the table shipped with the library for this class of device,
 * the site's file (CULET_SITE_CACHE, else /etc/culet/dispatch.jsonl), then the user's, whose
 * choices count most. With "off" none of them is read. A cache file that cannot be read is no
 * reason to fail: the engine starts without it, and culet_engine_cache_note has the sentence.
 * Errors: NOT_FOUND for a device that is not there, INVALID_ARGUMENT for a provider that is none.
 */
CULET_API culet_status culet_engine_create(const culet_engine_options* options,
                                           culet_engine** engine);

/* Requires: its plans were destroyed. Null is ignored. */
CULET_API void culet_engine_destroy(culet_engine* engine);

CULET_API culet_status culet_engine_device(const culet_engine* engine, culet_device* device);

/* Why the cache file or parts of it are not used; "" when all is well. Lives as long as the engine.
 */
CULET_API const char* culet_engine_cache_note(const culet_engine* engine);

/* Merges the engine's measured choices into a cache file, atomically. `path` null: the file that
 * the engine was opened with; without one ("off") nothing is written. Errors: as the file system,
 * DATA_LOSS when the file is no cache, INVALID_ARGUMENT for an empty path. */
CULET_API culet_status culet_engine_save(const culet_engine* engine, const char* path);

/* Whether culet_engine_save could write a new text, found out with a file beside the cache file
 * that is removed again; for a look before measuring. Makes the folder. Errors: as
 * culet_engine_save. */
CULET_API culet_status culet_engine_check_save(const culet_engine* engine, const char* path);

/* How many distinct problems the engine was asked for, and for how many the choice was measured. */
typedef struct culet_coverage {
  size_t struct_size;
  int32_t problems;
  int32_t measured;
} culet_coverage;

CULET_API culet_status culet_engine_coverage(const culet_engine* engine, culet_coverage* coverage);

/* What became of the records of a cache file. */
typedef struct culet_cache_report {
  size_t struct_size;
  int32_t used;           /* taken, or known already */
  int32_t outdated;       /* the engine has a newer or a measured choice */
  int32_t other_device;   /* of another device class */
  int32_t unknown_kernel; /* of a kernel that this library lacks */
  int32_t unavailable;    /* of a kernel whose library is absent or left out */
  int32_t other_provider; /* of a kernel whose library has another version today */
  int32_t infeasible;     /* the kernel refuses the problem today */
  int32_t other_version;  /* with fields that this library does not know */
  int32_t damaged;
} culet_cache_report;

/* Merges a cache file's choices into the engine's: measured beats predicted, newer beats older.
 * `report` may be null. Errors: NOT_FOUND, IO, DATA_LOSS when the file is no cache, UNSUPPORTED for
 * that of a newer version. */
CULET_API culet_status culet_engine_load(culet_engine* engine, const char* path,
                                         culet_cache_report* report);

/* A list of the kernels that compete, best first: "id", "backend", "provider", "unavailable" (why,
 * or
 * ""), types (null: any), "packs", "tile", "determinism", and what they cost in "info". */
CULET_API culet_status culet_kernels_json(const culet_engine* engine, char* text, size_t capacity,
                                          size_t* needed);

/* Checks a problem and gives its key, without a plan: "text", for people, and each field by its
 * name in cache files. Errors: INVALID_ARGUMENT, OUT_OF_RANGE. */
CULET_API culet_status culet_describe_json(const culet_engine* engine, const culet_problem* problem,
                                           char* text, size_t capacity, size_t* needed);

/* How to measure. What is 0 takes the device's default. */
typedef struct culet_tune_options {
  size_t struct_size;
  double budget_s;        /* seconds; 0: no limit */
  int32_t rounds;         /* samples of each surviving candidate */
  int32_t max_candidates; /* best predicted kept */
  int32_t force;          /* not 0: measure although a measured choice is known */
  void* stream;           /* a cudaStream_t that the caller works on: refused while it captures */
  const int32_t* stop;    /* once it is not 0, e.g. set by a signal handler or another thread, the
                             tuning ends after the sample under way; null: never */
} culet_tune_options;

/* What tuning found. */
typedef struct culet_choice {
  size_t struct_size;
  char kernel[128]; /* the kernel's id */
  int32_t swizzle;
  int32_t splits;
  int32_t measured;     /* 0: the cost model's prediction */
  int32_t measurements; /* of this tuning; 0 when the choice was known */
  double time_us;       /* median, or the prediction */
  double baseline_us;   /* the default choice's median in the same run */
  int32_t serial;  /* 1: launched without programmatic dependent launch, though pdl allows it */
  int32_t variant; /* the kernel's own choice, e.g. a library's algorithm; 0 for most */
} culet_choice;

/* Measures the feasible kernels on inputs and outputs of its own, each checked against the
 * reference first, and remembers the winner: later plans of this problem use it. When the budget or
 * `stop` ends it early, that is the best which the samples so far support. Waits for the device.
 * `options` and `choice` may be null.
 * Errors: FAILED_PRECONDITION while options->stream captures a graph; RESOURCE_EXHAUSTED when the
 * budget or `stop` ended it before any sample; UNSUPPORTED with every kernel's reason. */
CULET_API culet_status culet_tune(culet_engine* engine, const culet_problem* problem,
                                  const culet_tune_options* options, culet_choice* choice);

/* The choice for a problem, its predicted and measured time, its share of the roofline, and for
 * every other kernel why not. For people, several lines. */
CULET_API culet_status culet_explain(culet_engine* engine, const culet_problem* problem, char* text,
                                     size_t capacity, size_t* needed);

/* The same for programs: "problem", "choice", "source", "predicted_us", "roofline_us",
 * "roofline_share", and "rejected", a list of "kernel", "feasible", "reason". */
CULET_API culet_status culet_explain_json(culet_engine* engine, const culet_problem* problem,
                                          char* text, size_t capacity, size_t* needed);

/* Bytes of a plain weight, B (k, n), in a packed format, CULET_PACK_*.
 * Errors: INVALID_ARGUMENT for a format or layout that is none, UNSUPPORTED for an element type
 * that the format does not take. */
CULET_API culet_status culet_packed_bytes(const culet_engine* engine, const culet_matrix* layout,
                                          int32_t format, uint64_t* bytes);

/* Packs a plain weight; both in memory of the engine's device. `packed_layout` becomes what to give
 * as problem.b, with `packed` as problem.B; the plain weight is not needed then. Kernels that read
 * a format name it under "packs" of culet_kernels_json. Asynchronous on `stream` of a CUDA engine.
 * Errors: as culet_packed_bytes; INVALID_ARGUMENT for a null pointer, RESOURCE_EXHAUSTED when
 * `bytes` is too small, UNSUPPORTED for a format that the device does not pack. */
CULET_API culet_status culet_pack(const culet_engine* engine, const void* weight,
                                  const culet_matrix* layout, int32_t format, void* packed,
                                  uint64_t bytes, void* stream, culet_matrix* packed_layout);

/* The plain weight again, in host memory, in any plain layout. Errors: as culet_pack; UNSUPPORTED
 * on a GPU. */
CULET_API culet_status culet_unpack(const culet_engine* engine, const void* packed,
                                    const culet_matrix* packed_layout, void* weight,
                                    const culet_matrix* layout);

/* Quantises `source` (rows, cols) to E4M3 `values` of the same shape with FP32 scales, amax / 448:
 * CULET_QUANT_K one for `group` elements of a row, scales (rows, ceil(cols / group)); CULET_QUANT_B
 * one for a block of group x group, scales (ceil(rows / group), ceil(cols / group));
 * CULET_QUANT_ROW, scales (rows, 1), and CULET_QUANT_TENSOR, scales (1, 1), with group 0. On the
 * CPU from FP32, F16 and BF16, in any layouts. On a CUDA engine, whose device must be current: from
 * row-major BF16 by CULET_QUANT_K and 128, asynchronous on `stream`, which may be captured.
 * Errors: INVALID_ARGUMENT, OUT_OF_RANGE, and UNSUPPORTED where the device has no such quantiser;
 * nothing is written then. */
CULET_API culet_status culet_quantize(const culet_engine* engine, int32_t quant, int32_t group,
                                      const void* source, const culet_matrix* source_layout,
                                      void* values, const culet_matrix* values_layout,
                                      float* scales, const culet_matrix* scales_layout,
                                      void* stream);

/* A problem bound to a kernel. Shapes, B, V and the bias are fixed; A, U, C and D come with each
 * launch. Must not outlive its engine. */
typedef struct culet_plan culet_plan;

/* Chooses and prepares once: measured choice, else the cost model's.
 * Errors: INVALID_ARGUMENT, OUT_OF_RANGE, UNSUPPORTED with every kernel's reason. */
CULET_API culet_status culet_plan_create(culet_engine* engine, const culet_problem* problem,
                                         culet_plan** plan);

/* Null is ignored. Launches under way and captured graphs do not need the plan any more. */
CULET_API void culet_plan_destroy(culet_plan* plan);

CULET_API culet_status culet_plan_choice(const culet_plan* plan, culet_choice* choice);

/* Bytes of each part of a workspace. The larger of two plans' parts, field by field, serve both. */
typedef struct culet_workspace_size {
  size_t struct_size;
  uint64_t barriers, partials, tensormaps;
} culet_workspace_size;

/* All parts are 0 when the plan needs no workspace; culet_launch then takes a null one. */
CULET_API culet_status culet_plan_workspace(const culet_plan* plan, culet_workspace_size* size);

/* Bytes of the one buffer that holds all parts. */
CULET_API culet_status culet_workspace_bytes(const culet_workspace_size* size, uint64_t* bytes);

/* Memory that launches use, made by culet_workspace_create in the caller's buffer. */
typedef struct culet_workspace culet_workspace;

/* Splits `buffer` and zeroes what kernels expect zeroed, asynchronously on `stream`: the first
 * launch that uses it follows on that stream, or after waiting for it. Not inside a capture, where
 * every replay would zero it again.
 * Requires: `buffer` aligned to 256 bytes, on the engine's device.
 * Errors: INVALID_ARGUMENT for a null or misaligned buffer, RESOURCE_EXHAUSTED for a small one. */
CULET_API culet_status culet_workspace_create(culet_engine* engine,
                                              const culet_workspace_size* size, void* buffer,
                                              uint64_t bytes, void* stream,
                                              culet_workspace** workspace);

/* The buffer stays the caller's. Null is ignored. */
CULET_API void culet_workspace_destroy(culet_workspace* workspace);

/* D = alpha * (U.A)(V.B) + beta * C + bias. Asynchronous on `stream` (a cudaStream_t) of a CUDA
 * engine, complete on return on the CPU. Allocates nothing, waits for nothing; may be captured.
 * U and C are null where the problem has none.
 * Errors: INVALID_ARGUMENT for a null or misaligned pointer, overlap, or a beta that the plan was
 * not made for; RESOURCE_EXHAUSTED for a small workspace. Nothing is written then. */
CULET_API culet_status culet_launch(const culet_plan* plan, const void* A, const void* U,
                                    const void* C, void* D, float alpha, float beta,
                                    culet_workspace* workspace, void* stream);

/* The arguments of culet_launch. An alpha of 0 is 0, not a default. */
typedef struct culet_launch_args {
  size_t struct_size;
  const culet_plan* plan;
  const void *A, *U, *C;
  void* D;
  float alpha, beta;
  culet_workspace* workspace;
  void* stream;
} culet_launch_args;

/* culet_launch by one pointer, for callers whose arguments cost something each: other languages,
 * and who launches the same again. Errors: as culet_launch. */
CULET_API culet_status culet_launch_with(const culet_launch_args* args);

/* A grouped product, as a mixture of experts needs it: rows of A by groups, each with a matrix of
 * its own. Row i of D (rows, n) belongs to the group g with starts[g] <= i < starts[g] + counts[g],
 * and is row i of A, or row index[i], times the transpose of group g's matrix, plus its bias. Rows
 * of no group are not touched. Starts, counts and the index are memory of the engine's device and
 * are read when the product runs. Ranges are cut off at 0 and `rows`; they must not overlap. */
typedef struct culet_grouped {
  size_t struct_size;
  int32_t groups; /* 512 at most on a GPU */
  int32_t rows;   /* of D, at most; 0: there is nothing to do */
  int32_t a_rows; /* of A; without an index as many as D's or more */
  int32_t n;      /* columns of D */
  int32_t k;
  int32_t type;     /* of A and B: E4M3, BF16, F16, FP32 */
  int32_t d_type;   /* BF16, F16 or FP32 */
  int32_t epilogue; /* CULET_EPILOGUE_NONE, or _GATED_SILU: of a group's B the first half is gate */
  const void* A;
  int64_t lda; /* elements; 0: k */
  /* Of E4M3: a scale for each row of A and 128 of its values, at row * u_row + block * u_block.
   * Both 0: row-major. */
  const float* U;
  int64_t u_row, u_block;
  const void* B;         /* (groups, n, k), gated (groups, 2 n, k); contiguous, as all below */
  const float* V;        /* of E4M3: (groups, ceil(rows of a group's B / 128), ceil(k / 128)) */
  const int32_t* starts; /* (groups), or (groups + 1) offsets without counts */
  const int32_t* counts; /* (groups); null: a group ends where the next one starts */
  const int32_t* index;  /* (rows), or null; outside [0, a_rows): a row of zeros */
  const void* bias;      /* (groups, rows of a group's B), or null */
  int32_t bias_type;
  int32_t pdl; /* not 0 promises that the kernel before writes neither B nor V */
  void* D;
  int64_t ldd; /* elements; 0: n */
  /* What is expected of the routing, for the choice of a kernel alone: each of so many tokens goes
   * to `active` of `experts` experts, of which the groups are some or all. 0: D's rows are spread
   * over the groups. */
  int32_t expected_tokens, expected_active, expected_experts;
  int32_t sm_budget; /* at most so many SMs (CPU: threads); 0 is all */
} culet_grouped;

/* Computes a grouped product. On the CPU complete on return; on a Hopper GPU one launch,
 * asynchronous on `stream`, which may be captured. Blocks of E4M3: (1, 128) of A, (128, 128) of B.
 * Errors: INVALID_ARGUMENT, OUT_OF_RANGE; UNSUPPORTED where no kernel takes the problem: on a GPU
 * FP32 operands, rows that do not lie on 16 bytes, and other GPUs. */
CULET_API culet_status culet_grouped_gemm(culet_engine* engine, const culet_grouped* product,
                                          void* stream);

/* The capture that `stream` is recording into, a number that no other capture of this process has;
 * 0 when it records nothing, and always on the CPU. */
CULET_API culet_status culet_capture_id(const culet_engine* engine, void* stream, uint64_t* id);

enum { /* levels of messages */
       CULET_LOG_OFF = 0,
       CULET_LOG_DEBUG = 1,  /* each plan with its kernel */
       CULET_LOG_INFO = 2,   /* caches read and written, problems tuned, libraries opened */
       CULET_LOG_WARNING = 3 /* what was left out or replaced */
};

/* Gets one sentence, without a line end, on the thread that did the work; several threads may call
 * at once. What it calls of culet logs nothing. */
typedef void (*culet_log_function)(void* context, int32_t level, const char* message);

/* From now on messages of `least` and above go to `function`, for the whole process, which by
 * default says nothing; a null function or CULET_LOG_OFF ends that. Another thread's call that is
 * under way goes on to its end: `context` outlives it. Errors: INVALID_ARGUMENT for another level.
 */
CULET_API culet_status culet_set_log(culet_log_function function, void* context, int32_t least);

/* NVTX ranges around launches and nodes of graphs, named by their kernels, for NVIDIA's profilers:
 * on (not 0) or off, for the whole process; off by default unless CULET_NVTX is 1.
 * Errors: UNSUPPORTED where the library was built without NVTX. */
CULET_API culet_status culet_set_tracing(int32_t on);

/* For programs that map a checkpoint: when its file is cut while it is read, which raises SIGBUS,
 * the process says so on standard error, and ends with `exit_code`, or for 0 by the signal. Another
 * handler of the signal stays. Errors: INVALID_ARGUMENT unless exit_code is 0 to 255. */
CULET_API culet_status culet_explain_lost_files(int32_t exit_code);

/* What this machine has for culet, as `culet doctor --json` prints it: "ok" (nothing is broken),
 * "driver", "devices", "libraries", "caches", "environment", "findings", a list of "severity"
 * ("broken", "slow", "note"), "about", "what", "remedy", and the facts for people in "text". Opens
 * libraries and devices, which takes a second or two: give room for 64 KiB at once.
 * `cache_path`: as culet_engine_options. */
CULET_API culet_status culet_doctor_json(const char* cache_path, char* text, size_t capacity,
                                         size_t* needed);

#ifdef __cplusplus
}
#endif
