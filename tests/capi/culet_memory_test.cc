// The C interface where memory runs out: each call ends with a status, and what it began is given
// back. This program's operator new is libculet.so's, too.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "culet/culet.h"

namespace {

// Allocations of this thread that succeed; below 0, all do.
thread_local long allowed = -1;
thread_local bool refused = false;

bool Refuse() {
  if (allowed < 0) return false;
  if (allowed > 0) return --allowed, false;
  return refused = true;
}

void* Allocate(std::size_t size) {
  void* memory = Refuse() ? nullptr : std::malloc(size != 0 ? size : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* AllocateAligned(std::size_t size, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  void* memory = Refuse() ? nullptr : std::aligned_alloc(unit, (size + unit - 1) / unit * unit);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size); }
void* operator new[](std::size_t size) { return Allocate(size); }
void* operator new(std::size_t size, std::align_val_t unit) { return AllocateAligned(size, unit); }
void* operator new[](std::size_t size, std::align_val_t unit) {
  return AllocateAligned(size, unit);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

int failures = 0;

#define CHECK(condition)                                                                  \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      ++failures;                                                                         \
      std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, culet_last_error()); \
    }                                                                                     \
  } while (false)

// Makes the call with 0, 1, 2, ... allocations until it needs no more; after the first hundred in
// steps, for those that take thousands.
template <class Call, class Undo>
void WithLittleMemory(const char* name, const Call& call, const Undo& undo) {
  int refusals = 0;
  for (long count = 0;; count += 1 + count / 100) {
    allowed = count;
    refused = false;
    const culet_status status = call();
    allowed = -1;
    if (status == CULET_OK) undo();
    if (!refused) {
      if (status != CULET_OK) {
        ++failures;
        std::printf("%s with all memory: %s\n", name, culet_last_error());
      }
      break;
    }
    // A call may do without what it only keeps for later.
    if (status != CULET_OK && status != CULET_RESOURCE_EXHAUSTED) {
      ++failures;
      std::printf("%s with %ld allocations: status %d, %s\n", name, count, status,
                  culet_last_error());
    }
    ++refusals;
  }
  std::printf("%s: memory ran out %d times\n", name, refusals);
}

constexpr int kM = 2, kN = 24, kK = 40;
float a[kM * kK], b[kN * kK], d[kM * kN];

culet_matrix Matrix(std::int32_t order, std::int32_t rows, std::int32_t cols, std::int64_t ld) {
  culet_matrix matrix{};
  matrix.type = CULET_FLOAT32;
  matrix.order = order;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.ld = ld;
  return matrix;
}

culet_problem Problem() {
  culet_problem problem{};
  problem.struct_size = sizeof problem;
  problem.a = Matrix(CULET_ROW_MAJOR, kM, kK, kK);
  problem.b = Matrix(CULET_COL_MAJOR, kK, kN, kK);
  problem.d = Matrix(CULET_ROW_MAJOR, kM, kN, kN);
  problem.A = a;
  problem.B = b;
  problem.D = d;
  return problem;
}

void TestEngine() {
  culet_engine* engine = nullptr;
  WithLittleMemory(
      "culet_engine_create", [&] { return culet_engine_create(nullptr, &engine); },
      [&] { culet_engine_destroy(engine); });
}

void TestProducts(culet_engine* engine) {
  const culet_problem problem = Problem();
  culet_plan* plan = nullptr;
  std::size_t needed = 0;
  char text[256];
  WithLittleMemory(
      "culet_plan_create", [&] { return culet_plan_create(engine, &problem, &plan); },
      [&] { culet_plan_destroy(plan); });
  const auto nothing = [] {};
  WithLittleMemory(
      "culet_explain", [&] { return culet_explain(engine, &problem, text, sizeof text, &needed); },
      nothing);
  // Errors need memory for their sentences.
  culet_problem wrong = problem;
  wrong.d.cols = 3;
  for (allowed = 0; allowed == 0;) {
    CHECK(culet_plan_create(engine, &wrong, &plan) != CULET_OK);
    allowed = -1;
  }
  CHECK(culet_plan_create(engine, &problem, &plan) == CULET_OK);
  culet_plan_destroy(plan);
}

void TestModels(culet_engine* engine, const char* folder) {
  culet_model* model = nullptr;
  CHECK(culet_model_load(engine, folder, nullptr, &model) == CULET_OK);
  culet_session* session = nullptr;
  WithLittleMemory(
      "culet_session_create", [&] { return culet_session_create(model, nullptr, &session); },
      [&] { culet_session_destroy(session); });
  CHECK(culet_session_create(model, nullptr, &session) == CULET_OK);
  std::int32_t sequence = 0, next = 0, length = 0;
  CHECK(culet_session_add(session, &sequence) == CULET_OK);
  const std::string prompt = "481516+42108=";
  const std::vector<std::int32_t> tokens(prompt.begin(), prompt.end());
  const auto count = static_cast<std::int32_t>(tokens.size());
  culet_batch batch{sizeof batch, 1, 0, &sequence, &count, tokens.data()};
  culet_outputs outputs{};
  outputs.struct_size = sizeof outputs;
  outputs.next = &next;
  WithLittleMemory(
      "culet_session_prefill",
      [&] {
        const culet_status status = culet_session_prefill(session, &batch, &outputs);
        const long left = std::exchange(allowed, -1);
        CHECK(culet_session_sequence(session, sequence, &length, nullptr) == CULET_OK);
        CHECK(length == (status == CULET_OK ? count : 0));  // a failure leaves it as it was
        allowed = left;
        return status;
      },
      [&] {
        CHECK(next == '5');
        CHECK(culet_session_truncate(session, sequence, 0) == CULET_OK);
      });
  culet_session_destroy(session);
  culet_model_destroy(model);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return std::puts("give a model's folder"), 1;
  culet_engine* engine = nullptr;
  CHECK(culet_engine_create(nullptr, &engine) == CULET_OK);
  TestEngine();
  TestProducts(engine);
  TestModels(engine, arguments[1]);
  culet_engine_destroy(engine);
  std::printf("culet_memory_test: %d failures\n", failures);
  return failures != 0;
}
