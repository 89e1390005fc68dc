// The C interface where memory runs out: each call ends with a status, and what it began is given
// back. malloc and its kin are this program's, for libculet.so and all that it uses, too.
#include <dirent.h>
#include <stdlib.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "culet/culet.h"

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace {

// How memory is wanting: one allocation of any thread is refused, or all of this thread from one
// on.
enum class Want { kOne, kAllFrom };
Want want = Want::kOne;
std::atomic<long> before_refusal = -1;  // allocations that succeed; below 0, all do
std::atomic<bool> refused = false;
thread_local bool mine = false;  // the thread that kAllFrom is about

bool Refuse() {
  if (before_refusal.load(std::memory_order_relaxed) < 0) return false;
  if (want == Want::kAllFrom) {
    if (!mine) return false;
    if (before_refusal > 0) return --before_refusal, false;
  } else if (before_refusal.fetch_sub(1) != 0) {
    return false;
  }
  refused = true;
  errno = ENOMEM;
  return true;
}

}  // namespace

extern "C" {
void* malloc(std::size_t size) { return Refuse() ? nullptr : __libc_malloc(size); }
void* calloc(std::size_t count, std::size_t size) {
  return Refuse() ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) {
  return Refuse() ? nullptr : __libc_realloc(memory, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  return Refuse() ? nullptr : __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  void* made = memalign(alignment, size);
  if (made == nullptr) return ENOMEM;
  *memory = made;
  return 0;
}
}

namespace {

int failures = 0;

#define CHECK(condition)                                                                  \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      ++failures;                                                                         \
      std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, culet_last_error()); \
    }                                                                                     \
  } while (false)

// Makes the call with one allocation refused, each in turn until it needs no more, and then with
// all refused from each on; after the first `all` in steps, for those that take thousands.
// `prepare` comes before each call and `after` behind it, both with all memory.
template <class Prepare, class Call, class After>
void WithLittleMemory(const char* name, const Prepare& prepare, const Call& call,
                      const After& after, long all = 1000) {
  for (const Want how : {Want::kOne, Want::kAllFrom}) {
    want = how;
    mine = true;
    int refusals = 0, errors = 0;
    for (long count = 0;; count += 1 + count / all) {
      prepare();
      refused = false;
      before_refusal = count;
      const culet_status status = call();
      before_refusal = -1;
      after(status == CULET_OK);
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
        std::printf("%s without allocation %ld%s: %s, %s\n", name, count,
                    how == Want::kOne ? "" : " and later ones", culet_status_name(status),
                    culet_last_error());
      }
      ++refusals;
      errors += status != CULET_OK;
    }
    std::printf("%s: memory ran out %d times%s, and %d calls failed\n", name, refusals,
                how == Want::kOne ? " for once" : "", errors);
  }
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
      "culet_engine_create", [] {}, [&] { return culet_engine_create(nullptr, &engine); },
      [&](bool made) {
        if (made) culet_engine_destroy(engine);
      });
}

// An engine that has chosen nothing yet.
void Renew(culet_engine*& engine) {
  culet_engine_destroy(engine);
  CHECK(culet_engine_create(nullptr, &engine) == CULET_OK);
}

void TestPlans() {
  const culet_problem problem = Problem();
  culet_engine* engine = nullptr;
  culet_plan* plan = nullptr;
  std::size_t needed = 0;
  char text[256];
  WithLittleMemory(
      "culet_plan_create", [&] { Renew(engine); },
      [&] { return culet_plan_create(engine, &problem, &plan); },
      [&](bool made) {
        if (made) culet_plan_destroy(plan);
      });
  WithLittleMemory(
      "culet_explain", [&] { Renew(engine); },
      [&] { return culet_explain(engine, &problem, text, sizeof text, &needed); }, [](bool) {});
  // Errors need memory for their sentences.
  culet_problem wrong = problem;
  wrong.d.cols = 3;
  before_refusal = 0;
  const culet_status refusal = culet_plan_create(engine, &wrong, &plan);
  before_refusal = -1;
  CHECK(refusal != CULET_OK);
  culet_engine_destroy(engine);
}

void TestLaunches(culet_engine* engine) {
  const culet_problem problem = Problem();
  culet_plan* plan = nullptr;
  CHECK(culet_plan_create(engine, &problem, &plan) == CULET_OK);
  culet_workspace_size size{};
  size.struct_size = sizeof size;
  CHECK(culet_plan_workspace(plan, &size) == CULET_OK);
  std::uint64_t bytes = 0;
  CHECK(culet_workspace_bytes(&size, &bytes) == CULET_OK);
  std::vector<std::byte> buffer(bytes + 256);
  void* const start =
      reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(buffer.data()) + 255) / 256 * 256);
  culet_workspace* workspace = nullptr;
  CHECK(culet_workspace_create(engine, &size, start, bytes, nullptr, &workspace) == CULET_OK);
  // Its threads are made anew each time.
  const auto launch = [&] {
    return culet_launch(plan, a, nullptr, nullptr, d, 1, 0, workspace, nullptr);
  };
  std::int32_t threads = 0;
  CHECK(culet_threads(&threads) == CULET_OK);
  WithLittleMemory(
      "culet_launch",
      [&] {
        CHECK(culet_set_threads(1) == CULET_OK);
        CHECK(launch() == CULET_OK);
        CHECK(culet_set_threads(threads) == CULET_OK);
      },
      launch, [&](bool done) { CHECK(!done || d[0] == 0); });
  culet_workspace_destroy(workspace);
  culet_plan_destroy(plan);
}

void TestTuning() {
  const culet_problem problem = Problem();
  culet_engine* engine = nullptr;
  culet_tune_options options{};
  options.struct_size = sizeof options;
  options.rounds = 1;
  options.max_candidates = 2;
  WithLittleMemory(
      "culet_tune", [&] { Renew(engine); },
      [&] { return culet_tune(engine, &problem, &options, nullptr); }, [](bool) {});
  culet_engine_destroy(engine);
}

std::size_t FilesIn(const char* folder) {
  std::size_t files = 0;
  DIR* const open = opendir(folder);
  while (const dirent* entry = readdir(open)) files += entry->d_name[0] != '.';
  closedir(open);
  return files;
}

void TestSaving(culet_engine* engine) {
  const culet_problem problem = Problem();
  CHECK(culet_tune(engine, &problem, nullptr, nullptr) == CULET_OK);
  char folder[] = "/tmp/culet-memory-XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/cache.jsonl";
  WithLittleMemory(
      "culet_engine_save", [] {}, [&] { return culet_engine_save(engine, path.c_str()); },
      [&](bool saved) {
        CHECK(FilesIn(folder) <= 2);  // the cache and its lock, nothing begun
        CHECK(std::remove(path.c_str()) == 0 || !saved);
      });
  std::remove((path + ".lock").c_str());
  CHECK(FilesIn(folder) == 0);
  std::remove(folder);
}

// A session of one sequence, which has read `prompt`.
struct Reader {
  const culet_model* model;
  culet_session* session = nullptr;
  std::int32_t sequence = 0, next = 0;
  culet_outputs outputs{};

  explicit Reader(const culet_model* of) : model(of) {
    outputs.struct_size = sizeof outputs;
    outputs.next = &next;
  }
  ~Reader() { culet_session_destroy(session); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  void Renew() {
    culet_session_destroy(session);
    CHECK(culet_session_create(model, nullptr, &session) == CULET_OK);
    CHECK(culet_session_add(session, &sequence) == CULET_OK);
  }
  culet_status Read(const std::vector<std::int32_t>& tokens) {
    const auto count = static_cast<std::int32_t>(tokens.size());
    const culet_batch batch{sizeof batch, 1, 0, &sequence, &count, tokens.data()};
    return culet_session_step(session, &batch, &outputs);
  }
  std::int32_t Length() const {
    std::int32_t length = -1;
    CHECK(culet_session_sequence(session, sequence, &length, nullptr) == CULET_OK);
    return length;
  }
};

void TestModels(culet_engine* engine, const char* folder) {
  culet_model* model = nullptr;
  CHECK(culet_model_load(engine, folder, nullptr, &model) == CULET_OK);
  culet_session* session = nullptr;
  WithLittleMemory(
      "culet_session_create", [] {}, [&] { return culet_session_create(model, nullptr, &session); },
      [&](bool made) {
        if (made) culet_session_destroy(session);
      });
  const std::string text = "481516+42108=";
  const std::vector<std::int32_t> prompt(text.begin(), text.end()), token = {'5'};
  const auto length = static_cast<std::int32_t>(prompt.size());
  {
    Reader reader(model);
    WithLittleMemory(
        "culet_session_step, a prompt", [&] { reader.Renew(); },
        [&] { return reader.Read(prompt); },
        [&](bool read) {
          // A failure leaves it as it was, and the next step is right.
          CHECK(reader.Length() == (read ? length : 0));
          CHECK(read || reader.Read(prompt) == CULET_OK);
          CHECK(reader.next == '5');
        });
    WithLittleMemory(
        "culet_session_step, a token",
        [&] {
          reader.Renew();
          CHECK(reader.Read(prompt) == CULET_OK);
        },
        [&] { return reader.Read(token); },
        [&](bool read) {
          CHECK(reader.Length() == length + read);
          CHECK(read || reader.Read(token) == CULET_OK);
          CHECK(reader.next == '2');
        },
        100);
  }
  culet_model_destroy(model);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return std::puts("give a model's folder"), 1;
  culet_engine* engine = nullptr;
  CHECK(culet_engine_create(nullptr, &engine) == CULET_OK);
  TestEngine();
  TestPlans();
  TestLaunches(engine);
  TestTuning();
  TestSaving(engine);
  TestModels(engine, arguments[1]);
  culet_engine_destroy(engine);
  std::printf("culet_memory_test: %d failures\n", failures);
  return failures != 0;
}
