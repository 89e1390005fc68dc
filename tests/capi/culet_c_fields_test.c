/* What a problem may say in C: scales a row, C, bias, beta; whose kernels compete; and fields that
 * a newer header may have where this one has none. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

enum { kM = 2, kN = 3, kK = 4 };
static const uint8_t kA[kM * kK] = {0x38, 0x40, 0x44, 0x00, 0xb8, 0x38, 0x38, 0x48};
static const float kAValues[kM * kK] = {1, 2, 3, 0, -1, 1, 1, 4};
static const uint8_t kB[kN * kK] = {0x38, 0x38, 0x38, 0x38, 0x40, 0x00,
                                    0x40, 0x00, 0xb8, 0x44, 0x00, 0x38};
static const float kBValues[kN * kK] = {1, 1, 1, 1, 2, 0, 2, 0, -1, 3, 0, 1};
static const float kU[kM] = {0.5f, 4}, kV[kN] = {1, 2, 0.25f}, kBias[kN] = {8, -16, 32};
static const float kC[kM * kN] = {1, 2, 3, 4, 5, 6};

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

static culet_problem Problem(void) {
  culet_problem problem;
  memset(&problem, 0, sizeof problem);
  problem.struct_size = sizeof problem;
  problem.a = Matrix(CULET_FLOAT8_E4M3, CULET_ROW_MAJOR, kM, kK, kK);
  problem.b = Matrix(CULET_FLOAT8_E4M3, CULET_COL_MAJOR, kK, kN, kK);
  problem.u = Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, kM, 1, 1);
  problem.v = Matrix(CULET_FLOAT32, CULET_COL_MAJOR, 1, kN, 1);
  problem.c = problem.d = Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, kM, kN, kN);
  problem.quant_a = problem.quant_b = CULET_QUANT_ROW;
  problem.A = kA;
  problem.U = kU;
  problem.B = kB;
  problem.V = kV;
  problem.C = kC;
  problem.beta = 1;
  problem.bias = kBias;
  problem.bias_type = CULET_FLOAT32;
  return problem;
}

/* alpha 2, beta -3; the number of wrong elements. */
static int Wrong(const float* d) {
  int wrong = 0;
  for (int i = 0; i < kM; ++i) {
    for (int j = 0; j < kN; ++j) {
      float sum = 0;
      for (int k = 0; k < kK; ++k) sum += kAValues[i * kK + k] * kBValues[j * kK + k];
      wrong += d[i * kN + j] != 2 * kU[i] * kV[j] * sum - 3 * kC[i * kN + j] + kBias[j];
    }
  }
  return wrong;
}

/* The arguments as a struct: of this age, of an older program, of none. */
static void TestLaunchWith(const culet_plan* plan, culet_workspace* workspace) {
  float d[kM * kN];
  culet_launch_args args = {sizeof args, plan, kA, kU, kC, d, 2, -3, workspace, NULL};
  for (int i = 0; i < kM * kN; ++i) d[i] = NAN;
  CHECK(culet_launch_with(&args) == CULET_OK);
  CHECK(Wrong(d) == 0);
  for (int i = 0; i < kM * kN; ++i) d[i] = NAN;
  args.struct_size = offsetof(culet_launch_args, stream);
  args.stream = &args; /* behind the end of such a struct */
  CHECK(culet_launch_with(&args) == CULET_OK);
  CHECK(Wrong(d) == 0);
  args.struct_size = sizeof args;
  args.stream = NULL;
  args.A = NULL;
  CHECK_FAILS(culet_launch_with(&args), CULET_INVALID_ARGUMENT, "A is null");
  args.plan = NULL;
  CHECK_FAILS(culet_launch_with(&args), CULET_INVALID_ARGUMENT, "plan is null");
  args.struct_size = 0;
  CHECK_FAILS(culet_launch_with(&args), CULET_INVALID_ARGUMENT, "args.struct_size is 0");
  CHECK_FAILS(culet_launch_with(NULL), CULET_INVALID_ARGUMENT, "args is null");
}

static void TestProduct(culet_engine* engine, int32_t accumulate) {
  culet_problem problem = Problem();
  culet_plan* plan = NULL;
  culet_choice choice;
  culet_workspace_size size;
  culet_workspace* workspace = NULL;
  void* memory = NULL;
  uint64_t bytes = 0;
  float d[kM * kN];
  memset(&choice, 0x55, sizeof choice);
  choice.struct_size = sizeof choice;
  for (int i = 0; i < kM * kN; ++i) d[i] = NAN;
  problem.accumulate = accumulate;
  CHECK(culet_plan_create(engine, &problem, &plan) == CULET_OK);
  CHECK(culet_plan_choice(plan, &choice) == CULET_OK);
  CHECK(choice.variant >= 0 && choice.variant < 4096);
  size.struct_size = sizeof size;
  CHECK(culet_plan_workspace(plan, &size) == CULET_OK);
  CHECK(culet_workspace_bytes(&size, &bytes) == CULET_OK);
  CHECK(posix_memalign(&memory, 256, bytes > 0 ? bytes : 256) == 0);
  CHECK(culet_workspace_create(engine, &size, memory, bytes, NULL, &workspace) == CULET_OK);
  CHECK(culet_launch(plan, kA, kU, kC, d, 2, -3, workspace, NULL) == CULET_OK);
  CHECK(Wrong(d) == 0);
  TestLaunchWith(plan, workspace);
  culet_workspace_destroy(workspace);
  free(memory);
  culet_plan_destroy(plan);
}

static void TestRefusals(culet_engine* engine) {
  culet_plan* plan = NULL;
  culet_problem problem = Problem();
  problem.epilogue = CULET_EPILOGUE_GATED_SILU;
  CHECK(culet_plan_create(engine, &problem, &plan) != CULET_OK);
  problem = Problem();
  problem.epilogue = 77;
  CHECK_FAILS(culet_plan_create(engine, &problem, &plan), CULET_INVALID_ARGUMENT, "epilogue");
  problem = Problem();
  problem.group_a = 128;
  CHECK_FAILS(culet_plan_create(engine, &problem, &plan), CULET_INVALID_ARGUMENT, "group_size");
  problem = Problem();
  problem.v.reserved[2] = 1;
  CHECK_FAILS(culet_plan_create(engine, &problem, &plan), CULET_INVALID_ARGUMENT, "v.reserved");
  problem = Problem();
  problem.gate_order = CULET_GATE_HALVES;
  CHECK_FAILS(culet_plan_create(engine, &problem, &plan), CULET_INVALID_ARGUMENT,
              "gate_order is halves, but the epilogue none");
  problem.gate_order = 2;
  CHECK_FAILS(culet_plan_create(engine, &problem, &plan), CULET_INVALID_ARGUMENT, "gate_order");
  problem.gate_order = 256 + CULET_GATE_HALVES;
  CHECK_FAILS(culet_plan_create(engine, &problem, &plan), CULET_INVALID_ARGUMENT,
              "gate_order is 257; use the constants of culet.h");
}

/* A program of a newer header: its fields are 0 and it works, or not 0 and it is told. */
static void TestNewer(culet_engine* engine) {
  struct {
    culet_problem known;
    int64_t newer[2];
  } problem;
  struct {
    culet_choice known;
    int64_t newer;
  } choice;
  culet_plan* plan = NULL;
  memset(&problem, 0, sizeof problem);
  problem.known = Problem();
  problem.known.struct_size = sizeof problem;
  CHECK(culet_plan_create(engine, &problem.known, &plan) == CULET_OK);
  memset(&choice, 0x55, sizeof choice);
  choice.known.struct_size = sizeof choice;
  CHECK(culet_plan_choice(plan, &choice.known) == CULET_OK);
  CHECK(choice.known.struct_size == sizeof choice && choice.newer == 0x5555555555555555);
  culet_plan_destroy(plan);
  problem.newer[1] = 1;
  CHECK_FAILS(culet_plan_create(engine, &problem.known, &plan), CULET_INVALID_ARGUMENT,
              "a field behind these is set");
}

/* Fields that no kernel of this machine may heed: the problem has them all the same. */
static void TestFields(culet_engine* engine) {
  culet_problem problem = Problem();
  char text[4096];
  problem.sm_budget = 3;
  problem.bias_axis = CULET_BIAS_M;
  CHECK(culet_describe_json(engine, &problem, text, sizeof text, NULL) == CULET_OK);
  CHECK(strstr(text, "\"sm_budget\":3") != NULL && strstr(text, "\"bias_axis\":\"m\"") != NULL);
}

/* A size that was never set, before memory that happens to be 0: no reading to its end. */
static void TestSizeNotSet(culet_engine* engine) {
  static struct {
    culet_problem problem;
    char behind[1 << 17];
  } memory;
  culet_plan* plan = NULL;
  memory.problem = Problem();
  memory.problem.struct_size = sizeof memory;
  CHECK_FAILS(culet_plan_create(engine, &memory.problem, &plan), CULET_INVALID_ARGUMENT,
              "set it to sizeof(*problem)");
  memory.problem.struct_size = SIZE_MAX;
  CHECK_FAILS(culet_plan_create(engine, &memory.problem, &plan), CULET_INVALID_ARGUMENT,
              "set it to sizeof(*problem)");
  CHECK(plan == NULL);
}

static void TestProviders(void) {
  culet_engine* engine = NULL;
  culet_engine_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.providers = "own,nosuch";
  CHECK_FAILS(culet_engine_create(&options, &engine), CULET_INVALID_ARGUMENT, "nosuch");
  CHECK(engine == NULL);
  options.providers = "own";
  CHECK(culet_engine_create(&options, &engine) == CULET_OK);
  culet_engine_destroy(engine);
}

int main(void) {
  culet_engine* engine = NULL;
  CHECK(culet_engine_create(NULL, &engine) == CULET_OK);
  TestProduct(engine, CULET_ACCUMULATE_PROMOTED);
  TestProduct(engine, CULET_ACCUMULATE_FAST);
  TestRefusals(engine);
  TestNewer(engine);
  TestFields(engine);
  TestSizeNotSet(engine);
  culet_engine_destroy(engine);
  TestProviders();
  if (failures == 0) puts("ok");
  return failures != 0;
}
