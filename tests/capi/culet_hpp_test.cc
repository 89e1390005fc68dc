// The C++17 wrapper of culet.h, used by a program that knows nothing else of culet.
#include "culet/culet.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace culet::c;

namespace {

int failures = 0;

#define CHECK(condition)                                          \
  do {                                                            \
    if (!(condition)) {                                           \
      ++failures;                                                 \
      std::printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
    }                                                             \
  } while (false)

template <class Call>
void CheckThrows(culet_status status, const char* words, const Call& call) {
  try {
    call();
    ++failures;
    std::printf("no exception with \"%s\"\n", words);
  } catch (const Error& error) {
    if (error.status() == status && std::strstr(error.what(), words) != nullptr) return;
    ++failures;
    std::printf("no \"%s\" in %d: %s\n", words, error.status(), error.what());
  }
}

constexpr int kM = 3, kN = 70, kK = 20;

struct Values {
  std::vector<float> a = std::vector<float>(kM * kK), b = std::vector<float>(kN * kK);
  Values() {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 7 % 5) - 2;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 3 % 7) - 3;
  }
  bool Give(const std::vector<float>& d) const {
    for (int i = 0; i < kM; ++i) {
      for (int j = 0; j < kN; ++j) {
        float sum = 0;
        for (int k = 0; k < kK; ++k) sum += a[i * kK + k] * b[j * kK + k];
        if (d[i * kN + j] != sum) return false;
      }
    }
    return true;
  }
};

Problem ProblemOf(const Values& values) {
  Problem problem;
  problem.a = RowMajor(CULET_FLOAT32, kM, kK);
  problem.b = ColMajor(CULET_FLOAT32, kK, kN);
  problem.d = RowMajor(CULET_FLOAT32, kM, kN);
  problem.B = values.b.data();
  return problem;
}

void Launch(const Engine& engine, const Plan& plan, const Values& values, std::vector<float>& d) {
  const WorkspaceSize size = plan.workspace_size();
  const std::uint64_t bytes = Workspace::Bytes(size);
  std::vector<char> memory(bytes + 256);
  void* buffer = memory.data();
  std::size_t room = memory.size();
  std::align(256, bytes, buffer, room);
  const Workspace workspace(engine, size, buffer, bytes);
  LaunchPointers pointers;
  pointers.A = values.a.data();
  pointers.D = d.data();
  plan.Launch(pointers, workspace);
}

void TestProducts(const Engine& engine) {
  const Values values;
  std::vector<float> d(kM * kN, -1e9f), packed_d = d;
  Problem problem = ProblemOf(values);
  Plan plan(engine, problem);
  CHECK(plan.choice().kernel[0] != '\0' && plan.choice().measured == 0);
  Launch(engine, plan, values, d);
  CHECK(values.Give(d));
  d[5] += 1;
  CHECK(!values.Give(d));
  const Plan moved = std::move(plan);
  CHECK(plan.get() == nullptr);  // NOLINT: what was moved from is empty
  CHECK(moved.get() != nullptr);

  const std::uint64_t bytes = engine.PackedBytes(problem.b, CULET_PACK_PANELS64);
  std::vector<float> packed(bytes / sizeof(float)), again(values.b.size());
  const culet_matrix plain = problem.b;
  problem.b = engine.Pack(values.b.data(), plain, CULET_PACK_PANELS64, packed.data(), bytes);
  problem.B = packed.data();
  engine.Unpack(packed.data(), problem.b, again.data(), plain);
  CHECK(again == values.b);
  Launch(engine, Plan(engine, problem), values, packed_d);
  CHECK(values.Give(packed_d));
}

void TestTuning(const Engine& engine, const std::string& file) {
  const Values values;
  const Problem problem = ProblemOf(values);
  TuneOptions options;
  options.rounds = 3;
  const Choice choice = engine.Tune(problem, options);
  CHECK(choice.measured == 1 && choice.time_us > 0);
  CHECK(engine.Explain(problem).find(choice.kernel) != std::string::npos);
  CHECK(engine.ExplainJson(problem).find(choice.kernel) != std::string::npos);
  CHECK(engine.DescribeJson(problem).find("\"m\":3,") != std::string::npos);
  CHECK(engine.KernelsJson().find(choice.kernel) != std::string::npos);
  engine.Save();  // "off": nothing
  engine.CheckSave();
  engine.CheckSave(file);
  engine.Save(file);
  const Engine other("cpu", "off", "own");
  CHECK(other.Load(file).damaged == 0);
  CHECK(other.cache_note().empty());
}

void TestQuantizer(const Engine& engine) {
  const std::vector<float> source = {448, 1, 896, 2};
  std::vector<std::uint8_t> values(4);
  std::vector<float> scales(2);
  engine.Quantize(CULET_QUANT_ROW, 0, source.data(), RowMajor(CULET_FLOAT32, 2, 2), values.data(),
                  RowMajor(CULET_FLOAT8_E4M3, 2, 2), scales.data(), RowMajor(CULET_FLOAT32, 2, 1));
  CHECK(scales == std::vector<float>({1, 2}));
  CHECK(values == std::vector<std::uint8_t>({0x7e, 0x38, 0x7e, 0x38}));
}

void TestGrouped(const Engine& engine) {
  const std::vector<float> a = {1, 2, 3}, b = {10, 100};
  const std::vector<std::int32_t> offsets = {0, 1, 3};
  std::vector<float> d(3);
  Grouped product;
  product.groups = 2;
  product.rows = product.a_rows = 3;
  product.n = product.k = 1;
  product.type = product.d_type = CULET_FLOAT32;
  product.A = a.data();
  product.B = b.data();
  product.starts = offsets.data();
  product.D = d.data();
  engine.GroupedGemm(product);
  CHECK(d == std::vector<float>({10, 200, 300}));
}

// The sum that examples/adder, a model of bytes, gives.
void TestSession(const Engine& engine, const std::string& folder) {
  const Model model(engine, folder);
  CHECK(std::string(model.info().model_type) == "llama");
  CHECK(model.end_tokens() == std::vector<std::int32_t>({'\n'}));
  SessionOptions options;
  options.max_context = 32;
  Session session(model, options);
  CHECK(session.info().max_context == 32);
  const std::int32_t sequence = session.Add();
  const std::string prompt = "481516+42108=";
  StepOutputs wanted;
  wanted.logits = wanted.all_logits = wanted.hidden = true;
  StepResult result = session.Prefill({{sequence, {prompt.begin(), prompt.end()}}}, wanted);
  CHECK(result.all_logits.size() == prompt.size() * static_cast<std::size_t>(model.info().vocab));
  CHECK(!result.hidden.empty());
  std::uint64_t state = 1;
  CHECK(Sample(result.logits.data(), result.logits.size(), Sampling(), state) == result.next[0]);
  std::string answer;
  while (result.next[0] != '\n') {
    answer += static_cast<char>(result.next[0]);
    result = session.Step({{sequence, {result.next[0]}}});
  }
  CHECK(answer == "523624");
  const auto length = static_cast<std::int32_t>(prompt.size() + answer.size());
  CHECK(session.LengthOf(sequence) == length && session.LeftOf(sequence) == 32 - length);
  Sampling sampling;
  sampling.temperature = 3;
  sampling.top_k = 1;
  sampling.seed = 5;
  session.SetSampling(sequence, sampling);
  session.Truncate(sequence, 0);
  result = session.Prefill({{sequence, {prompt.begin(), prompt.end()}}});
  CHECK(result.next[0] == '5');
  sampling.top_k = -1;
  CheckThrows(CULET_INVALID_ARGUMENT, "top_k is -1",
              [&] { session.SetSampling(sequence, sampling); });
  session.Truncate(sequence, 0);
  const StepResult again = session.Prefill({{sequence, {prompt.begin(), prompt.end()}}});
  std::string heard(1, static_cast<char>(again.next[0]));
  const std::vector<DecodedTokens> decoded =
      session.Decode({{sequence, {again.next[0]}}}, 10, model.end_tokens(),
                     [&](std::int32_t part, std::int32_t token) {
                       CHECK(part == 0);
                       if (token != '\n') heard += static_cast<char>(token);
                       return true;
                     });
  CHECK(heard == answer && decoded[0].tokens.size() == answer.size());
  CHECK(decoded[0].end == CULET_DECODE_END_TOKEN);
  session.Remove(sequence);
  CheckThrows(CULET_NOT_FOUND, "sequence", [&] { session.Remove(sequence); });
}

void TestErrors(const Engine& engine) {
  CheckThrows(CULET_NOT_FOUND, "tpu:0", [] { Engine none("tpu:0"); });
  CheckThrows(CULET_NOT_FOUND, "/nonexistent", [&] { Model none(engine, "/nonexistent"); });
  CheckThrows(CULET_NOT_FOUND, "/nonexistent", [] { ProductsJson("/nonexistent"); });
  const Values values;
  Problem problem = ProblemOf(values);
  problem.d.cols = 5;
  CheckThrows(CULET_INVALID_ARGUMENT, "5", [&] { Plan none(engine, problem); });
}

}  // namespace

static_assert(!std::is_copy_constructible<Engine>::value, "handles are owned by one");
static_assert(std::is_nothrow_move_constructible<Session>::value, "and can be handed on");

int main(int count, char** arguments) {
  if (count < 3) return std::puts("usage: culet_hpp_test ADDER_FOLDER SCRATCH_FOLDER"), 2;
  CHECK(DevicesJson().find("\"cpu\"") != std::string::npos);
  CHECK(!Devices().empty() && Devices()[0].arch == 0);
  const Engine engine("cpu", "off");
  CHECK(engine.device().units >= 1);
  CHECK(engine.CaptureId(nullptr) == 0);
  TestProducts(engine);
  TestTuning(engine, std::string(arguments[2]) + "/culet_hpp_test.jsonl");
  TestQuantizer(engine);
  TestGrouped(engine);
  TestSession(engine, arguments[1]);
  TestErrors(engine);
  if (failures == 0) std::puts("ok");
  return failures != 0;
}
