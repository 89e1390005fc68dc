/* Operands beyond plain matrices in C: batches, zero points, gated epilogues, packed weights,
 * quantisers; and what the library tells as JSON. All values are exact in their types. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdint.h>
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

static culet_matrix Batch(culet_matrix matrix, int32_t num, int64_t stride) {
  matrix.num = num;
  matrix.batch_stride = stride;
  return matrix;
}

/* d (m, n) = a (m, k) b^T, b (n, k), all FP32 and tight. */
static culet_problem Problem(int m, int n, int k) {
  culet_problem problem;
  memset(&problem, 0, sizeof problem);
  problem.struct_size = sizeof problem;
  problem.a = Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, m, k, k);
  problem.b = Matrix(CULET_FLOAT32, CULET_COL_MAJOR, k, n, k);
  problem.d = Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, m, n, n);
  return problem;
}

static void Fill(float* values, int count, int seed) {
  for (int i = 0; i < count; ++i) values[i] = (float)((i * 7 + seed * 5 + i / 11) % 9 - 4);
}

/* Plans and launches; the status of the first that fails. */
static culet_status Run(culet_engine* engine, const culet_problem* problem, void* d) {
  culet_plan* plan = NULL;
  culet_workspace_size size;
  culet_workspace* workspace = NULL;
  void* memory = NULL;
  uint64_t bytes = 0;
  const culet_status planned = culet_plan_create(engine, problem, &plan);
  if (planned != CULET_OK) return planned;
  size.struct_size = sizeof size;
  CHECK(culet_plan_workspace(plan, &size) == CULET_OK);
  CHECK(culet_workspace_bytes(&size, &bytes) == CULET_OK);
  CHECK(posix_memalign(&memory, 256, bytes > 0 ? bytes : 256) == 0);
  CHECK(culet_workspace_create(engine, &size, memory, bytes, NULL, &workspace) == CULET_OK);
  const culet_status launched =
      culet_launch(plan, problem->A, problem->U, problem->C, d, 1, 0, workspace, NULL);
  culet_workspace_destroy(workspace);
  free(memory);
  culet_plan_destroy(plan);
  return launched;
}

enum { kM = 3, kN = 32, kK = 20, kNum = 4, kGap = 7 };

static void TestBatch(culet_engine* engine) {
  enum { kSizeA = kM * kK + kGap, kSizeD = kM * kN + kGap };
  float a[kNum * kSizeA], b[kN * kK], d[kNum * kSizeD];
  culet_problem problem = Problem(kM, kN, kK);
  Fill(a, kNum * kSizeA, 1);
  Fill(b, kN * kK, 2);
  for (int i = 0; i < kNum * kSizeD; ++i) d[i] = NAN;
  problem.a = Batch(problem.a, kNum, kSizeA);
  problem.d = Batch(problem.d, kNum, kSizeD); /* b is shared */
  problem.A = a;
  problem.B = b;
  CHECK(Run(engine, &problem, d) == CULET_OK);
  for (int s = 0; s < kNum; ++s) {
    for (int i = 0; i < kM; ++i) {
      for (int j = 0; j < kN; ++j) {
        float sum = 0;
        for (int k = 0; k < kK; ++k) sum += a[s * kSizeA + i * kK + k] * b[j * kK + k];
        CHECK(d[s * kSizeD + i * kN + j] == sum);
      }
    }
    for (int i = kM * kN; i < kSizeD; ++i) CHECK(isnan(d[s * kSizeD + i]));
  }
  problem.d.batch_stride = 0;
  CHECK_FAILS(Run(engine, &problem, d), CULET_INVALID_ARGUMENT, "batch_stride is 0");
}

static void TestZeroPoints(culet_engine* engine) {
  float a[kM * kK], d[kM * kN], v[kN], zeros[kN];
  uint8_t b[kN * kK / 2];
  culet_problem problem = Problem(kM, kN, kK);
  Fill(a, kM * kK, 3);
  for (int i = 0; i < kN * kK / 2; ++i) b[i] = (uint8_t)(i * 37 + 11);
  for (int j = 0; j < kN; ++j) {
    v[j] = (float)(1 << j % 3);
    zeros[j] = (float)(j % 5 + 6);
  }
  problem.b.type = CULET_UINT4;
  problem.quant_b = CULET_QUANT_ROW;
  problem.v = Matrix(CULET_FLOAT32, CULET_COL_MAJOR, 1, kN, 1);
  problem.zero_b = zeros;
  problem.zero_b_type = CULET_FLOAT32;
  problem.A = a;
  problem.B = b;
  problem.V = v;
  for (int i = 0; i < kM * kN; ++i) d[i] = NAN;
  CHECK(Run(engine, &problem, d) == CULET_OK);
  for (int i = 0; i < kM; ++i) {
    for (int j = 0; j < kN; ++j) {
      float sum = 0;
      for (int k = 0; k < kK; ++k) {
        const int at = j * kK + k;
        const int value = at % 2 == 0 ? b[at / 2] & 15 : b[at / 2] >> 4;
        sum += a[i * kK + k] * ((float)value - zeros[j]);
      }
      CHECK(d[i * kN + j] == sum * v[j]);
    }
  }
  problem.zero_b = NULL;
  CHECK_FAILS(Run(engine, &problem, d), CULET_INVALID_ARGUMENT, "zero_b");
  problem.zero_b_type = 256 + CULET_FLOAT32;
  CHECK_FAILS(Run(engine, &problem, d), CULET_INVALID_ARGUMENT, "257");
}

static double Silu(double x) { return x / (1 + exp(-x)); }

static void TestGatedEpilogues(culet_engine* engine, int32_t gate_order) {
  float a[kM * kK], b[kN * kK], d[kM * kN / 2], scales[kM];
  uint8_t quantised[kM * kN / 2];
  culet_problem problem = Problem(kM, kN, kK);
  Fill(a, kM * kK, 4);
  Fill(b, kN * kK, 5);
  for (int i = 0; i < kM * kN / 2; ++i) d[i] = NAN;
  problem.d = Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, kM, kN / 2, kN / 2);
  problem.epilogue = CULET_EPILOGUE_GATED_SILU;
  problem.gate_order = gate_order;
  problem.A = a;
  problem.B = b;
  CHECK(Run(engine, &problem, d) == CULET_OK);
  for (int i = 0; i < kM; ++i) {
    double largest = 0;
    for (int j = 0; j < kN / 2; ++j) {
      double gate = 0, up = 0;
      const int halves = gate_order == CULET_GATE_HALVES;
      const int column = halves ? j : j / 8 * 16 + j % 8, other = column + (halves ? kN / 2 : 8);
      for (int k = 0; k < kK; ++k) {
        gate += (double)a[i * kK + k] * b[column * kK + k];
        up += (double)a[i * kK + k] * b[other * kK + k];
      }
      const double expected = Silu(gate) * up;
      CHECK(fabs(d[i * kN / 2 + j] - expected) <= 1e-5 * fabs(expected) + 1e-6);
      if (fabs(expected) > largest) largest = fabs(expected);
    }
    scales[i] = (float)(largest / 448);
  }
  char text[4096];
  CHECK(culet_describe_json(engine, &problem, text, sizeof text, NULL) == CULET_OK);
  CHECK(strstr(text, gate_order == CULET_GATE_HALVES ? "\"gate_order\":\"halves\""
                                                     : "\"gate_order\":\"eights\"") != NULL);
  float found[kM];
  problem.d.type = CULET_FLOAT8_E4M3;
  problem.epilogue = CULET_EPILOGUE_GATED_SILU_QUANT;
  problem.quant_d = CULET_QUANT_K;
  problem.group_d = 128;
  CHECK(Run(engine, &problem, quantised) != CULET_OK); /* where to leave the scales? */
  problem.w = Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, kM, 1, 1);
  culet_plan* plan = NULL;
  CHECK_FAILS(culet_plan_create(engine, &problem, &plan), CULET_INVALID_ARGUMENT, "W is null");
  problem.W = found;
  for (int i = 0; i < kM; ++i) found[i] = NAN;
  memset(quantised, 0x7f, sizeof quantised);
  CHECK(Run(engine, &problem, quantised) == CULET_OK);
  for (int i = 0; i < kM; ++i) CHECK(fabs(found[i] - scales[i]) <= 1e-5 * scales[i]);
  for (int i = 0; i < kM * kN / 2; ++i) CHECK((quantised[i] & 0x7f) != 0x7f);
}

static void TestPackedWeights(culet_engine* engine) {
  enum { kWide = 100 }; /* columns: more than one panel, the last one partial */
  float a[kM * kK], b[kWide * kK], again[kWide * kK], plain[kM * kWide], packed[kM * kWide];
  culet_problem problem = Problem(kM, kWide, kK);
  culet_matrix layout;
  uint64_t bytes = 0;
  void* memory = NULL;
  Fill(a, kM * kK, 6);
  Fill(b, kWide * kK, 7);
  for (int i = 0; i < kM * kWide; ++i) plain[i] = packed[i] = NAN;
  problem.A = a;
  problem.B = b;
  CHECK(Run(engine, &problem, plain) == CULET_OK);
  CHECK(culet_packed_bytes(engine, &problem.b, CULET_PACK_PANELS64, &bytes) == CULET_OK);
  CHECK(bytes == 2 * 64 * kK * sizeof(float));
  CHECK(posix_memalign(&memory, 256, bytes) == 0);
  CHECK_FAILS(
      culet_pack(engine, b, &problem.b, CULET_PACK_PANELS64, memory, bytes - 1, NULL, &layout),
      CULET_RESOURCE_EXHAUSTED, "bytes");
  CHECK_FAILS(culet_pack(engine, b, &problem.b, 99, memory, bytes, NULL, &layout),
              CULET_INVALID_ARGUMENT, "format is 99");
  CHECK(culet_pack(engine, b, &problem.b, CULET_PACK_PANELS64, memory, bytes, NULL, &layout) ==
        CULET_OK);
  CHECK(layout.pack == CULET_PACK_PANELS64 && layout.rows == kK && layout.cols == kWide);
  for (int i = 0; i < kWide * kK; ++i) again[i] = NAN;
  CHECK(culet_unpack(engine, memory, &layout, again, &problem.b) == CULET_OK);
  CHECK(memcmp(again, b, sizeof b) == 0);
  problem.b = layout;
  problem.B = memory;
  CHECK(Run(engine, &problem, packed) == CULET_OK);
  CHECK(memcmp(plain, packed, sizeof plain) == 0); /* integers: exact in any order */
  problem.b.pack = 99;
  CHECK_FAILS(Run(engine, &problem, packed), CULET_INVALID_ARGUMENT, "no packed format");
  CHECK_FAILS(culet_packed_bytes(engine, NULL, CULET_PACK_PANELS64, &bytes), CULET_INVALID_ARGUMENT,
              "layout is null");
  free(memory);
}

/* Values of E4M3 whose group's amax / 448 is a power of two. */
static void TestQuantisers(culet_engine* engine) {
  enum { kRows = 4, kCols = 6 };
  static const uint8_t kBits[] = {0x7e, 0x38, 0xb8, 0x40, 0x00, 0x44}; /* 448 1 -1 2 0 3 */
  static const float kValues[] = {448, 1, -1, 2, 0, 3};
  float source[kRows * kCols], scales[kRows * 3];
  uint8_t values[kRows * kCols];
  const culet_matrix from = Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, kRows, kCols, kCols);
  const culet_matrix to = Matrix(CULET_FLOAT8_E4M3, CULET_ROW_MAJOR, kRows, kCols, kCols);
  culet_matrix out = Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, kRows, 1, 1);
  for (int i = 0; i < kRows * kCols; ++i) {
    source[i] = kValues[i % kCols] * (float)(1 << i / kCols);
  }
  CHECK(culet_quantize(engine, CULET_QUANT_ROW, 0, source, &from, values, &to, scales, &out,
                       NULL) == CULET_OK);
  for (int i = 0; i < kRows; ++i) {
    CHECK(scales[i] == (float)(1 << i));
    CHECK(memcmp(values + i * kCols, kBits, kCols) == 0);
  }
  out = Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, 1, 1, 1);
  CHECK(culet_quantize(engine, CULET_QUANT_TENSOR, 0, source, &from, values, &to, scales, &out,
                       NULL) == CULET_OK);
  CHECK(scales[0] == 8 && memcmp(values + 3 * kCols, kBits, kCols) == 0);
  out = Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, kRows, 3, 3);
  CHECK(culet_quantize(engine, CULET_QUANT_K, 2, source, &from, values, &to, scales, &out, NULL) ==
        CULET_OK);
  CHECK(scales[0] == 1 && scales[9] == 8 && scales[1] == 2.0f / 448);
  out = Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, 2, 3, 3);
  CHECK(culet_quantize(engine, CULET_QUANT_B, 2, source, &from, values, &to, scales, &out, NULL) ==
        CULET_OK);
  CHECK(scales[0] == 2 && scales[3] == 8);
  CHECK_FAILS(
      culet_quantize(engine, CULET_QUANT_NONE, 0, source, &from, values, &to, scales, &out, NULL),
      CULET_INVALID_ARGUMENT, "quant is 0");
  CHECK_FAILS(
      culet_quantize(engine, CULET_QUANT_ROW, 2, source, &from, values, &to, scales, &out, NULL),
      CULET_INVALID_ARGUMENT, "group is 2");
  CHECK_FAILS(
      culet_quantize(engine, CULET_QUANT_K, 2, source, &from, values, &to, NULL, &out, NULL),
      CULET_INVALID_ARGUMENT, "scales");
}

/* Rows 1 and 2 are of group 1, row 4 is of group 0, and made of row 1 of a. */
static void TestGrouped(culet_engine* engine) {
  enum { kGroups = 2, kRows = 6 };
  static const int32_t kStarts[] = {4, 1}, kCounts[] = {1, 2}, kIndex[] = {0, 2, -1, 0, 1, 0};
  static const int kGroupOf[] = {-1, 1, 1, -1, 0, -1};
  float a[kRows * kK], b[kGroups * kN * kK], bias[kGroups * kN], d[kRows * kN];
  culet_grouped product;
  Fill(a, kRows * kK, 1);
  Fill(b, kGroups * kN * kK, 2);
  Fill(bias, kGroups * kN, 3);
  memset(&product, 0, sizeof product);
  product.struct_size = sizeof product;
  product.groups = kGroups;
  product.rows = product.a_rows = kRows;
  product.n = kN;
  product.k = kK;
  product.type = product.d_type = product.bias_type = CULET_FLOAT32;
  product.A = a;
  product.B = b;
  product.bias = bias;
  product.starts = kStarts;
  product.counts = kCounts;
  product.index = kIndex;
  product.D = d;
  for (int i = 0; i < kRows * kN; ++i) d[i] = 77;
  CHECK(culet_grouped_gemm(engine, &product, NULL) == CULET_OK);
  for (int row = 0; row < kRows; ++row) {
    for (int n = 0; n < kN; ++n) {
      const int group = kGroupOf[row];
      float sum = group >= 0 ? bias[group * kN + n] : 77;
      for (int k = 0; k < kK && group >= 0 && kIndex[row] >= 0; ++k) {
        sum += a[kIndex[row] * kK + k] * b[(group * kN + n) * kK + k];
      }
      CHECK(d[row * kN + n] == sum);
    }
  }
  product.lda = 1;
  CHECK_FAILS(culet_grouped_gemm(engine, &product, NULL), CULET_INVALID_ARGUMENT, "lda is 1");
  product.lda = 0;
  product.type = 257;
  CHECK_FAILS(culet_grouped_gemm(engine, &product, NULL), CULET_INVALID_ARGUMENT, "type is 257");
  product.type = CULET_FLOAT32;
  product.sm_budget = -1;
  CHECK_FAILS(culet_grouped_gemm(engine, &product, NULL), CULET_INVALID_ARGUMENT,
              "sm_budget is -1");
  product.struct_size = 8;
  CHECK_FAILS(culet_grouped_gemm(engine, &product, NULL), CULET_INVALID_ARGUMENT, "struct_size");
  CHECK_FAILS(culet_grouped_gemm(engine, NULL, NULL), CULET_INVALID_ARGUMENT, "product is null");
}

static void TestTexts(culet_engine* engine) {
  const culet_problem problem = Problem(kM, kN, kK);
  static char text[1 << 20];
  size_t needed = 0;
  culet_problem wrong = problem;
  wrong.d.cols = 5;
  CHECK(culet_devices_json(text, sizeof text, &needed) == CULET_OK);
  CHECK(needed == strlen(text) + 1 && strstr(text, "\"device\":\"cpu\"") != NULL);
  CHECK(culet_devices_json(NULL, 0, &needed) == CULET_OK);
  CHECK_FAILS(culet_devices_json(NULL, 9, &needed), CULET_INVALID_ARGUMENT, "text is null");
  CHECK(culet_kernels_json(engine, text, sizeof text, NULL) == CULET_OK);
  CHECK(strstr(text, "\"reference\"") != NULL && strstr(text, "k_major_n64") != NULL);
  CHECK(culet_describe_json(engine, &problem, text, sizeof text, NULL) == CULET_OK);
  CHECK(strstr(text, "\"m\":3") != NULL && strstr(text, "\"type_b\":\"float32\"") != NULL);
  CHECK_FAILS(culet_describe_json(engine, &wrong, text, sizeof text, NULL), CULET_INVALID_ARGUMENT,
              "5");
  CHECK(culet_explain_json(engine, &problem, text, sizeof text, NULL) == CULET_OK);
  CHECK(strstr(text, "\"rejected\":[") != NULL && strstr(text, "\"choice\":{\"kernel\"") != NULL);
  CHECK_FAILS(culet_products_json("/nonexistent", text, sizeof text, NULL), CULET_NOT_FOUND,
              "/nonexistent");
  CHECK_FAILS(culet_products_json(NULL, text, sizeof text, NULL), CULET_INVALID_ARGUMENT, "path");
}

/* Two engines' choices in one file, and back. */
static void TestCacheFiles(culet_engine* engine) {
  char folder[] = "/tmp/culet_c_operands_XXXXXX", path[64];
  culet_engine* next = NULL;
  culet_cache_report report;
  culet_choice choice;
  culet_plan* plan = NULL;
  culet_problem problem = Problem(kM, kN, kK);
  static float b[kN * kK];
  problem.B = b;
  memset(&report, 0x55, sizeof report);
  report.struct_size = sizeof report;
  choice.struct_size = sizeof choice;
  CHECK(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/cache.jsonl", folder);
  CHECK_FAILS(culet_engine_load(engine, path, &report), CULET_NOT_FOUND, path);
  CHECK(culet_engine_check_save(engine, path) == CULET_OK);
  CHECK(culet_engine_check_save(engine, NULL) == CULET_OK); /* "off" */
  CHECK_FAILS(culet_engine_check_save(NULL, path), CULET_INVALID_ARGUMENT, "engine");
  CHECK_FAILS(culet_engine_check_save(engine, "/dev/null/cache"), CULET_IO, "/dev/null/cache");
  CHECK(culet_tune(engine, &problem, NULL, NULL) == CULET_OK);
  CHECK_FAILS(culet_engine_save(engine, ""), CULET_INVALID_ARGUMENT, "path is empty");
  CHECK_FAILS(culet_engine_check_save(engine, ""), CULET_INVALID_ARGUMENT, "path is empty");
  CHECK(culet_engine_save(engine, path) == CULET_OK);
  CHECK(culet_engine_create(NULL, &next) == CULET_OK);
  CHECK(culet_engine_load(next, path, &report) == CULET_OK);
  CHECK(report.used == 1 && report.damaged == 0 && report.other_device == 0);
  CHECK(culet_plan_create(next, &problem, &plan) == CULET_OK);
  CHECK(culet_plan_choice(plan, &choice) == CULET_OK && choice.measured == 1);
  culet_plan_destroy(plan);
  problem.a.rows = problem.d.rows = 2;
  CHECK(culet_tune(next, &problem, NULL, NULL) == CULET_OK);
  CHECK(culet_engine_save(next, path) == CULET_OK); /* merges */
  CHECK(culet_engine_load(engine, path, NULL) == CULET_OK);
  CHECK(culet_engine_load(engine, path, &report) == CULET_OK && report.used == 2);
  FILE* file = fopen(path, "w");
  fputs("not a cache\n", file);
  fclose(file);
  CHECK_FAILS(culet_engine_load(engine, path, &report), CULET_DATA_LOSS, path);
  CHECK_FAILS(culet_engine_check_save(engine, path), CULET_DATA_LOSS, path);
  CHECK_FAILS(culet_engine_load(engine, NULL, &report), CULET_INVALID_ARGUMENT, "path");
  culet_engine_destroy(next);
  unlink(path);
  strcat(path, ".lock");
  unlink(path);
  CHECK(rmdir(folder) == 0);
}

static void TestThreads(void) {
  int32_t threads = 0, now = 0;
  CHECK(culet_threads(&threads) == CULET_OK && threads >= 1);
  CHECK_FAILS(culet_set_threads(0), CULET_INVALID_ARGUMENT, "0");
  CHECK(culet_set_threads(2) == CULET_OK);
  CHECK(culet_threads(&now) == CULET_OK && now == 2);
  CHECK(culet_set_threads(threads) == CULET_OK);
}

int main(void) {
  culet_engine* engine = NULL;
  CHECK(setenv("CULET_CACHE", "off", 1) == 0);
  TestThreads();
  CHECK(culet_engine_create(NULL, &engine) == CULET_OK);
  TestBatch(engine);
  TestZeroPoints(engine);
  TestGatedEpilogues(engine, CULET_GATE_EIGHTS);
  TestGatedEpilogues(engine, CULET_GATE_HALVES);
  TestPackedWeights(engine);
  TestQuantisers(engine);
  TestGrouped(engine);
  TestTexts(engine);
  TestCacheFiles(engine);
  culet_engine_destroy(engine);
  if (failures == 0) puts("ok");
  return failures != 0;
}
