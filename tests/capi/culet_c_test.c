/* The C interface from C99: exact products through plans, several threads, errors, versions of
 * structs, tuning, the cache file. With the argument `sizes` it prints the size of each struct. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "culet/culet.h"

static int failures = 0;

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      ++failures;                                                                                  \
      printf("%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #condition, culet_last_error()); \
    }                                                                                              \
  } while (0)

#define CHECK_FAILS(call, code, words)                                                      \
  do {                                                                                      \
    CHECK((call) == (code));                                                                \
    if (strstr(culet_last_error(), (words)) == NULL) {                                      \
      ++failures;                                                                           \
      printf("%s:%d: no \"%s\" in: %s\n", __FILE__, __LINE__, (words), culet_last_error()); \
    }                                                                                       \
  } while (0)

enum { kM = 5, kN = 130, kK = 200, kLd = 210, kGroupsK = 2, kGroupsN = 2, kGuard = 64 };
static const uint16_t kPoison = 0x7fed; /* a NaN of BF16 */

/* Inputs whose every partial sum is an integer that FP32 holds. */
static const uint8_t kE4m3[] = {0x00, 0x38, 0x40, 0x44, 0x48, 0xb8, 0xc0}; /* 0 1 2 3 4 -1 -2 */
static const float kValues[] = {0, 1, 2, 3, 4, -1, -2};

typedef struct Inputs {
  uint8_t a[kM * kLd], b[kN * kLd];
  float a_values[kM * kK], b_values[kN * kK];
  float u_rows[kM * kGroupsK], u_columns[kGroupsK * (kM + 3)]; /* the same scales twice */
  float v[kGroupsN * kGroupsK];
} Inputs;

typedef struct Output {
  uint16_t d[kGuard + kM * kLd + kGuard];
} Output;

static unsigned Next(unsigned* state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 16;
}

static void Fill(Inputs* in, unsigned seed) {
  memset(in, 0x7f, sizeof *in); /* E4M3's NaN between the rows */
  for (int i = 0; i < kM; ++i) {
    for (int k = 0; k < kK; ++k) {
      const unsigned pick = Next(&seed) % sizeof kE4m3;
      in->a[i * kLd + k] = kE4m3[pick];
      in->a_values[i * kK + k] = kValues[pick];
    }
    for (int g = 0; g < kGroupsK; ++g) {
      const float scale = (float)(1u << Next(&seed) % 3);
      in->u_rows[i * kGroupsK + g] = scale;
      in->u_columns[g * (kM + 3) + i] = scale;
    }
  }
  for (int j = 0; j < kN; ++j) {
    for (int k = 0; k < kK; ++k) {
      const unsigned pick = Next(&seed) % sizeof kE4m3;
      in->b[j * kLd + k] = kE4m3[pick];
      in->b_values[j * kK + k] = kValues[pick];
    }
  }
  for (int i = 0; i < kGroupsN * kGroupsK; ++i) in->v[i] = (float)(1u << Next(&seed) % 2);
}

static void Poison(Output* out) {
  for (size_t i = 0; i < sizeof out->d / sizeof out->d[0]; ++i) out->d[i] = kPoison;
}

/* Round to nearest even of a finite value. */
static uint16_t ToBf16(double value) {
  const float single = (float)value;
  uint32_t bits;
  memcpy(&bits, &single, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Wrong elements, and poison that is gone where nothing may be written. */
static int Wrong(const Inputs* in, const Output* out) {
  int wrong = 0;
  const uint16_t* d = out->d + kGuard;
  for (int i = 0; i < kM; ++i) {
    for (int j = 0; j < kN; ++j) {
      double sum = 0;
      for (int k = 0; k < kK; ++k) {
        sum += (double)in->a_values[i * kK + k] * in->u_rows[i * kGroupsK + k / 128] *
               in->b_values[j * kK + k] * in->v[j / 128 * kGroupsK + k / 128];
      }
      wrong += d[i * kLd + j] != ToBf16(sum);
    }
    for (int j = kN; j < kLd; ++j) wrong += d[i * kLd + j] != kPoison;
  }
  for (int i = 0; i < kGuard; ++i) wrong += out->d[i] != kPoison || d[kM * kLd + i] != kPoison;
  return wrong;
}

static culet_matrix Matrix(int32_t type, int32_t order, int32_t rows, int32_t cols, int64_t ld) {
  culet_matrix matrix;
  memset(&matrix, 0, sizeof matrix);
  matrix.type = type;
  matrix.order = order;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.ld = ld;
  return matrix;
}

static culet_problem Problem(const Inputs* in, int column_major_scales) {
  culet_problem problem;
  memset(&problem, 0, sizeof problem);
  problem.struct_size = sizeof problem;
  problem.a = Matrix(CULET_FLOAT8_E4M3, CULET_ROW_MAJOR, kM, kK, kLd);
  problem.b = Matrix(CULET_FLOAT8_E4M3, CULET_COL_MAJOR, kK, kN, kLd);
  problem.u = column_major_scales ? Matrix(CULET_FLOAT32, CULET_COL_MAJOR, kM, kGroupsK, kM + 3)
                                  : Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, kM, kGroupsK, kGroupsK);
  problem.v = Matrix(CULET_FLOAT32, CULET_COL_MAJOR, kGroupsK, kGroupsN, kGroupsK);
  problem.d = Matrix(CULET_BFLOAT16, CULET_ROW_MAJOR, kM, kN, kLd);
  problem.quant_a = CULET_QUANT_K;
  problem.quant_b = CULET_QUANT_B;
  problem.group_a = problem.group_b = 128;
  problem.A = in->a;
  problem.U = column_major_scales ? in->u_columns : in->u_rows;
  problem.B = in->b;
  problem.V = in->v;
  return problem;
}

/* A workspace for one plan with the memory behind it. */
typedef struct Owned {
  void* memory;
  culet_workspace* workspace;
} Owned;

static Owned MakeWorkspace(culet_engine* engine, const culet_plan* plan) {
  Owned owned = {NULL, NULL};
  culet_workspace_size size;
  uint64_t bytes = 0;
  memset(&size, 0, sizeof size);
  size.struct_size = sizeof size;
  CHECK(culet_plan_workspace(plan, &size) == CULET_OK);
  CHECK(culet_workspace_bytes(&size, &bytes) == CULET_OK);
  CHECK(bytes >= size.barriers + size.partials + size.tensormaps);
  CHECK(posix_memalign(&owned.memory, 256, bytes) == 0);
  CHECK_FAILS(
      culet_workspace_create(engine, &size, (char*)owned.memory + 8, bytes, NULL, &owned.workspace),
      CULET_INVALID_ARGUMENT, "256");
  CHECK_FAILS(
      culet_workspace_create(engine, &size, owned.memory, bytes - 1, NULL, &owned.workspace),
      CULET_RESOURCE_EXHAUSTED, "bytes");
  CHECK(owned.workspace == NULL);
  CHECK(culet_workspace_create(engine, &size, owned.memory, bytes, NULL, &owned.workspace) ==
        CULET_OK);
  return owned;
}

static void Release(Owned owned) {
  culet_workspace_destroy(owned.workspace);
  free(owned.memory);
}

static void TestProducts(culet_engine* engine) {
  for (int column_major_scales = 0; column_major_scales < 2; ++column_major_scales) {
    Inputs* in = malloc(sizeof *in);
    Output* out = malloc(sizeof *out);
    culet_plan* plan = NULL;
    Fill(in, 7);
    const culet_problem problem = Problem(in, column_major_scales);
    CHECK(culet_plan_create(engine, &problem, &plan) == CULET_OK);
    Owned owned = MakeWorkspace(engine, plan);
    for (int repeat = 0; repeat < 2; ++repeat) {
      Poison(out);
      CHECK(culet_launch(plan, problem.A, problem.U, NULL, out->d + kGuard, 1, 0, owned.workspace,
                         NULL) == CULET_OK);
      CHECK(Wrong(in, out) == 0);
    }
    in->a_values[0] += 1; /* the check itself can fail */
    CHECK(Wrong(in, out) != 0);
    Release(owned);
    culet_plan_destroy(plan);
    free(in);
    free(out);
  }
}

typedef struct Job {
  culet_engine* engine;
  const culet_plan* plan;
  const Inputs* in;
  int failed;
  char error[64];
} Job;

/* One plan serves several threads, each with its own workspace; each has its own last error. */
static void* RunJob(void* argument) {
  Job* job = argument;
  Output* out = malloc(sizeof *out);
  if (strcmp(culet_last_error(), "") != 0) ++job->failed;
  Owned owned = MakeWorkspace(job->engine, job->plan);
  for (int repeat = 0; repeat < 50; ++repeat) {
    Poison(out);
    if (culet_launch(job->plan, job->in->a, job->in->u_rows, NULL, out->d + kGuard, 1, 0,
                     owned.workspace, NULL) != CULET_OK ||
        Wrong(job->in, out) != 0) {
      ++job->failed;
    }
  }
  culet_launch(job->plan, NULL, NULL, NULL, NULL, 1, 0, NULL, NULL);
  snprintf(job->error, sizeof job->error, "%s", culet_last_error());
  Release(owned);
  free(out);
  return NULL;
}

static void TestThreads(culet_engine* engine) {
  enum { kThreads = 4 };
  Inputs* in = malloc(sizeof *in);
  culet_plan* plan = NULL;
  pthread_t threads[kThreads];
  Job jobs[kThreads];
  Fill(in, 11);
  const culet_problem problem = Problem(in, 0);
  CHECK(culet_plan_create(engine, &problem, &plan) == CULET_OK);
  CHECK_FAILS(culet_device_get(99, NULL), CULET_INVALID_ARGUMENT, "99");
  for (int i = 0; i < kThreads; ++i) {
    jobs[i].engine = engine;
    jobs[i].plan = plan;
    jobs[i].in = in;
    jobs[i].failed = 0;
    CHECK(pthread_create(&threads[i], NULL, RunJob, &jobs[i]) == 0);
  }
  for (int i = 0; i < kThreads; ++i) {
    pthread_join(threads[i], NULL);
    CHECK(jobs[i].failed == 0);
    CHECK(strstr(jobs[i].error, "A is null") != NULL);
  }
  CHECK(strstr(culet_last_error(), "99") != NULL); /* untouched by the others */
  culet_plan_destroy(plan);
  free(in);
}

static void TestErrors(culet_engine* engine) {
  Inputs* in = malloc(sizeof *in);
  Output* out = malloc(sizeof *out);
  culet_plan* plan = NULL;
  culet_engine* none = NULL;
  culet_device device;
  culet_engine_options options;
  memset(&device, 0, sizeof device);
  memset(&options, 0, sizeof options);
  Fill(in, 3);
  Poison(out);
  culet_problem problem = Problem(in, 0);

  options.struct_size = sizeof options;
  options.device = "tpu:0";
  CHECK_FAILS(culet_engine_create(&options, &none), CULET_NOT_FOUND, "tpu:0");
  CHECK(none == NULL);
  CHECK_FAILS(culet_engine_create(NULL, NULL), CULET_INVALID_ARGUMENT, "engine is null");
  CHECK_FAILS(culet_device_get(0, &device), CULET_INVALID_ARGUMENT, "struct_size is 0");
  CHECK_FAILS(culet_plan_create(NULL, &problem, &plan), CULET_INVALID_ARGUMENT, "engine is null");
  CHECK_FAILS(culet_plan_create(engine, NULL, &plan), CULET_INVALID_ARGUMENT, "problem is null");

  problem.d.cols = kN - 1;
  CHECK_FAILS(culet_plan_create(engine, &problem, &plan), CULET_INVALID_ARGUMENT, "130");
  problem = Problem(in, 0);
  problem.a.type = CULET_FLOAT8_E4M3 + 256; /* must not be taken for E4M3 */
  CHECK_FAILS(culet_plan_create(engine, &problem, &plan), CULET_INVALID_ARGUMENT, "260");
  problem = Problem(in, 0);
  problem.determinism = 77;
  CHECK_FAILS(culet_plan_create(engine, &problem, &plan), CULET_INVALID_ARGUMENT, "77");
  problem = Problem(in, 0);
  problem.V = NULL;
  CHECK_FAILS(culet_plan_create(engine, &problem, &plan), CULET_INVALID_ARGUMENT, "V is null");
  CHECK(plan == NULL);

  problem = Problem(in, 0);
  CHECK(culet_plan_create(engine, &problem, &plan) == CULET_OK);
  CHECK_FAILS(culet_launch(plan, NULL, in->u_rows, NULL, out->d, 1, 0, NULL, NULL),
              CULET_INVALID_ARGUMENT, "A is null");
  CHECK_FAILS(culet_launch(plan, in->a, in->u_rows, NULL, in->a, 1, 0, NULL, NULL),
              CULET_INVALID_ARGUMENT, "overlaps");
  CHECK_FAILS(culet_launch(plan, in->a, in->u_rows, out->d, out->d, 1, 1, NULL, NULL),
              CULET_INVALID_ARGUMENT, "beta");
  for (size_t i = 0; i < sizeof out->d / sizeof out->d[0]; ++i) CHECK(out->d[i] == kPoison);
  culet_plan_destroy(plan);
  free(in);
  free(out);

  CHECK(strcmp(culet_status_name(CULET_UNSUPPORTED), "UNSUPPORTED") == 0);
  CHECK(culet_status_name((culet_status)1234) != NULL);
  culet_engine_destroy(NULL);
  culet_plan_destroy(NULL);
  culet_workspace_destroy(NULL);
}

/* Callers of an older header give shorter structs, those of a newer one longer ones. */
static void TestVersions(culet_engine* engine) {
  struct {
    culet_device known;
    int64_t newer;
  } device;
#ifndef CULET_TEST_OLDEST /* behind the oldest struct lies what this library does know */
  struct {
    culet_engine_options known;
    int64_t newer;
  } options;
  culet_engine* other = NULL;
  memset(&options, 0, sizeof options);
  options.known.struct_size = sizeof options;
  options.known.cache_path = "off";
  CHECK(culet_engine_create(&options.known, &other) == CULET_OK);
  culet_engine_destroy(other);
  options.newer = 1;
  CHECK_FAILS(culet_engine_create(&options.known, &other), CULET_INVALID_ARGUMENT, "struct_size");
#endif

  memset(&device, 0x55, sizeof device);
  device.known.struct_size = sizeof device;
  CHECK(culet_engine_device(engine, &device.known) == CULET_OK);
  CHECK(device.known.struct_size == sizeof device && device.newer == 0x5555555555555555);
  CHECK(device.known.arch == 0 && device.known.ordinal == -1 && device.known.units >= 1);
  memset(&device, 0x55, sizeof device);
  device.known.struct_size = offsetof(culet_device, ordinal);
  CHECK(culet_engine_device(engine, &device.known) == CULET_OK);
  CHECK(device.known.arch == 0 && device.known.ordinal == 0x55555555);
}

static void TestTuning(culet_engine* engine) {
  Inputs* in = malloc(sizeof *in);
  culet_plan* plan = NULL;
  culet_choice before, tuned, after;
  culet_tune_options options;
  char small[16], large[16384];
  size_t needed = 0;
  memset(&before, 0, sizeof before);
  memset(&options, 0, sizeof options);
  before.struct_size = sizeof before;
  tuned = after = before;
  options.struct_size = sizeof options;
  options.rounds = 3;
  Fill(in, 5);
  const culet_problem problem = Problem(in, 0);

  CHECK(culet_plan_create(engine, &problem, &plan) == CULET_OK);
  CHECK(culet_plan_choice(plan, &before) == CULET_OK);
  CHECK(before.measured == 0 && before.time_us > 0 && before.kernel[0] != '\0');
  culet_plan_destroy(plan);
  CHECK(culet_tune(engine, &problem, &options, &tuned) == CULET_OK);
  CHECK(tuned.measured == 1 && tuned.measurements > 0 && tuned.time_us > 0);
  CHECK(culet_plan_create(engine, &problem, &plan) == CULET_OK);
  CHECK(culet_plan_choice(plan, &after) == CULET_OK);
  CHECK(after.measured == 1 && strcmp(after.kernel, tuned.kernel) == 0);
  culet_plan_destroy(plan);
  /* A busy machine's measurement may be noisy, and is repeated. */
  for (int i = 0; i < 100 && tuned.measurements != 0; ++i)
    CHECK(culet_tune(engine, &problem, NULL, &tuned) == CULET_OK);
  CHECK(tuned.measurements == 0); /* known */
  options.force = 1;
  CHECK(culet_tune(engine, &problem, &options, &tuned) == CULET_OK);
  CHECK(tuned.measurements > 0);
  int32_t stop = 0;
  options.stop = &stop;
  CHECK(culet_tune(engine, &problem, &options, &tuned) == CULET_OK);
  CHECK(tuned.measurements > 0);
  stop = 1; /* before the first sample */
  CHECK(culet_tune(engine, &problem, &options, &tuned) == CULET_RESOURCE_EXHAUSTED);
  CHECK(strstr(culet_last_error(), "was stopped before any sample") != NULL);

  CHECK(culet_explain(engine, &problem, NULL, 0, &needed) == CULET_OK);
  CHECK(needed > sizeof small && needed <= sizeof large);
  memset(small, 'x', sizeof small);
  CHECK(culet_explain(engine, &problem, small, sizeof small - 1, NULL) == CULET_OK);
  CHECK(strlen(small) == sizeof small - 2 && small[sizeof small - 1] == 'x');
  CHECK(culet_explain(engine, &problem, large, sizeof large, NULL) == CULET_OK);
  CHECK(strlen(large) + 1 == needed && strstr(large, tuned.kernel) != NULL);
  CHECK(strncmp(large, small, sizeof small - 2) == 0);
  free(in);
}

/* What one engine measured, the next one knows. */
static void TestCacheFile(culet_engine* engine) {
  Inputs* in = malloc(sizeof *in);
  culet_engine* next = NULL;
  culet_plan* plan = NULL;
  culet_choice choice;
  culet_engine_options options;
  char folder[] = "/tmp/culet_c_test_XXXXXX", path[64];
  memset(&choice, 0, sizeof choice);
  memset(&options, 0, sizeof options);
  choice.struct_size = sizeof choice;
  options.struct_size = sizeof options;
  Fill(in, 5);
  const culet_problem problem = Problem(in, 0);
  CHECK(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/cache.jsonl", folder);

  CHECK(culet_tune(engine, &problem, NULL, NULL) == CULET_OK);
  CHECK(culet_engine_save(engine, path) == CULET_OK);
  options.cache_path = path;
  CHECK(culet_engine_create(&options, &next) == CULET_OK);
  CHECK(strcmp(culet_engine_cache_note(next), "") == 0);
  CHECK(culet_plan_create(next, &problem, &plan) == CULET_OK);
  CHECK(culet_plan_choice(plan, &choice) == CULET_OK);
  CHECK(choice.measured == 1);
  culet_plan_destroy(plan);
  culet_engine_destroy(next);

  FILE* file = fopen(path, "w");
  fputs("not a cache\n", file);
  fclose(file);
  CHECK(culet_engine_create(&options, &next) == CULET_OK);
  CHECK(strcmp(culet_engine_cache_note(next), "") != 0);
  CHECK_FAILS(culet_engine_save(engine, path), CULET_DATA_LOSS, path);
  culet_engine_destroy(next);
  CHECK(culet_engine_save(engine, NULL) == CULET_OK); /* opened without a file: nothing to write */
  unlink(path);
  strcat(path, ".lock");
  unlink(path);
  CHECK(rmdir(folder) == 0);
  free(in);
}

static void PrintSizes(void) {
  printf(
      "Matrix %zu\nProblem %zu\nDeviceStruct %zu\nEngineOptions %zu\nTuneOptions %zu\n"
      "Choice %zu\nWorkspaceSize %zu\n",
      sizeof(culet_matrix), sizeof(culet_problem), sizeof(culet_device),
      sizeof(culet_engine_options), sizeof(culet_tune_options), sizeof(culet_choice),
      sizeof(culet_workspace_size));
#ifndef CULET_TEST_OLDEST
  printf(
      "ModelOptions %zu\nModelInfo %zu\nSessionOptions %zu\nSessionInfo %zu\nBatch %zu\n"
      "Outputs %zu\nSampling %zu\nCacheReport %zu\nDecodeOptions %zu\nLaunchArgs %zu\n"
      "Coverage %zu\nGrouped %zu\n",
      sizeof(culet_model_options), sizeof(culet_model_info), sizeof(culet_session_options),
      sizeof(culet_session_info), sizeof(culet_batch), sizeof(culet_outputs),
      sizeof(culet_sampling), sizeof(culet_cache_report), sizeof(culet_decode_options),
      sizeof(culet_launch_args), sizeof(culet_coverage), sizeof(culet_grouped));
#endif
}

int main(int count, char** arguments) {
  if (count > 1 && strcmp(arguments[1], "sizes") == 0) {
    PrintSizes();
    return 0;
  }
  CHECK(setenv("CULET_CACHE", "off", 1) == 0); /* the user's own cache stays as it is */
  culet_engine* engine = NULL;
  int32_t devices = 0;
  CHECK(strcmp(culet_last_error(), "") == 0);
  CHECK(culet_device_count(&devices) == CULET_OK && devices >= 1);
  CHECK(culet_engine_create(NULL, &engine) == CULET_OK);
  uint64_t capture = 1;
  CHECK(culet_capture_id(engine, NULL, &capture) == CULET_OK && capture == 0);
  TestProducts(engine);
  TestThreads(engine);
  TestErrors(engine);
  TestVersions(engine);
  TestTuning(engine);
  TestCacheFile(engine);
  culet_engine_destroy(engine);
  printf("%d failures\n", failures);
  return failures != 0;
}
