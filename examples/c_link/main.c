/* A quantised product, and a model that reads a prompt and goes on: culet from C.
 * c_link [FOLDER PROMPT]: the folder of a checkpoint whose tokens are bytes, like examples/adder.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "culet/culet.h"

static culet_matrix Matrix(int32_t type, int32_t order, int32_t rows, int32_t cols, int64_t ld) {
  culet_matrix matrix = {0};
  matrix.type = type;
  matrix.order = order;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.ld = ld;
  return matrix;
}

enum { kM = 4, kN = 512, kK = 1024 };
static float x[kM * kK], weight[kN * kK], y[kM * kN];
static float x_scales[kM], weight_scales[kN];
static uint8_t x_values[kM * kK], weight_values[kN * kK];

/* y = x weight^T in E4M3 with one scale a row. */
static culet_status Multiply(culet_engine* engine) {
  const culet_matrix rows = Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, kM, kK, kK);
  const culet_matrix weight_rows = Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, kN, kK, kK);
  culet_problem problem = {0};
  culet_plan* plan = NULL;
  culet_workspace* workspace = NULL;
  culet_workspace_size size = {0};
  uint64_t bytes = 0;
  void* memory = NULL;
  culet_status status;

  problem.struct_size = sizeof problem;
  problem.a = Matrix(CULET_FLOAT8_E4M3, CULET_ROW_MAJOR, kM, kK, kK);
  problem.u = Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, kM, 1, 1);
  problem.b = Matrix(CULET_FLOAT8_E4M3, CULET_COL_MAJOR, kK, kN, kK); /* a weight (n, k) */
  problem.v = Matrix(CULET_FLOAT32, CULET_COL_MAJOR, 1, kN, 1);
  problem.d = Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, kM, kN, kN);
  problem.quant_a = problem.quant_b = CULET_QUANT_ROW;
  problem.B = weight_values;
  problem.V = weight_scales;

  /* The same bytes, seen as what the quantiser writes: rows of x and of the weight. */
  culet_matrix values = problem.a, scales = problem.u;
  status = culet_quantize(engine, CULET_QUANT_ROW, 0, x, &rows, x_values, &values, x_scales,
                          &scales, NULL);
  if (status != CULET_OK) return status;
  values = Matrix(CULET_FLOAT8_E4M3, CULET_ROW_MAJOR, kN, kK, kK);
  scales = Matrix(CULET_FLOAT32, CULET_ROW_MAJOR, kN, 1, 1);
  status = culet_quantize(engine, CULET_QUANT_ROW, 0, weight, &weight_rows, weight_values, &values,
                          weight_scales, &scales, NULL);
  if (status != CULET_OK) return status;

  status = culet_plan_create(engine, &problem, &plan); /* once */
  if (status != CULET_OK) return status;
  size.struct_size = sizeof size;
  status = culet_plan_workspace(plan, &size);
  if (status == CULET_OK) status = culet_workspace_bytes(&size, &bytes);
  if (status == CULET_OK) {
    memory = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256); /* yours, kept with it */
    status = culet_workspace_create(engine, &size, memory, bytes, NULL, &workspace);
  }
  if (status == CULET_OK) {
    status = culet_launch(plan, x_values, x_scales, NULL, y, 1, 0, workspace, NULL);
  }
  if (status == CULET_OK) {
    culet_choice choice = {0};
    choice.struct_size = sizeof choice;
    status = culet_plan_choice(plan, &choice);
    printf("y[0] is %g, by %s\n", y[0], choice.kernel);
  }
  culet_workspace_destroy(workspace);
  free(memory);
  culet_plan_destroy(plan);
  return status;
}

static int IsEnd(const int32_t* ends, int32_t count, int32_t token) {
  for (int32_t i = 0; i < count; ++i) {
    if (ends[i] == token) return 1;
  }
  return 0;
}

/* Greedy continuation of a prompt, to the model's end token. */
static culet_status Continue(culet_session* session, const culet_model* model, const char* prompt) {
  int32_t sequence = 0, next = 0, left = 0, ends[8], end_count = 0;
  int32_t tokens[256];
  int32_t length = (int32_t)strlen(prompt);
  culet_batch batch = {0};
  culet_outputs outputs = {0};
  culet_status status = culet_session_add(session, &sequence);
  if (status == CULET_OK) status = culet_model_end_tokens(model, ends, 8, &end_count);
  if (status != CULET_OK) return status;
  if (end_count > 8) end_count = 8;
  if (length > 256) length = 256;
  for (int32_t i = 0; i < length; ++i) tokens[i] = (unsigned char)prompt[i];

  batch.struct_size = sizeof batch;
  batch.count = 1;
  batch.sequences = &sequence;
  batch.lengths = &length;
  batch.tokens = tokens;
  outputs.struct_size = sizeof outputs;
  outputs.next = &next;
  status = culet_session_prefill(session, &batch, &outputs);
  batch.lengths = NULL; /* one token each from here on */
  batch.tokens = &next;
  fputs(prompt, stdout);
  while (status == CULET_OK && !IsEnd(ends, end_count, next)) {
    putchar(next);
    status = culet_session_sequence(session, sequence, NULL, &left);
    if (status != CULET_OK || left == 0) break;
    status = culet_session_step(session, &batch, &outputs);
  }
  putchar('\n');
  return status;
}

static culet_status Run(culet_engine* engine, const char* folder, const char* prompt) {
  culet_model* model = NULL;
  culet_session* session = NULL;
  culet_status status = culet_model_load(engine, folder, NULL, &model);
  if (status == CULET_OK) status = culet_session_create(model, NULL, &session);
  if (status == CULET_OK) status = Continue(session, model, prompt);
  culet_session_destroy(session);
  culet_model_destroy(model);
  return status;
}

int main(int count, char** arguments) {
  culet_engine* engine = NULL;
  for (int i = 0; i < kM * kK; ++i) x[i] = 1;
  for (int i = 0; i < kN * kK; ++i) weight[i] = 0.5f;
  culet_status status = culet_engine_create(NULL, &engine);
  if (status == CULET_OK) status = Multiply(engine);
  if (status == CULET_OK && count == 3) status = Run(engine, arguments[1], arguments[2]);
  if (status != CULET_OK) {
    fprintf(stderr, "%s: %s\n", culet_status_name(status), culet_last_error());
  }
  culet_engine_destroy(engine);
  return status != CULET_OK || y[0] < 511.9f || y[0] > 512.1f; /* 1/448 is rounded */
}
