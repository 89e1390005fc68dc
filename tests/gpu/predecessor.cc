#include "predecessor.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "check_kernels.h"
#include "jobs.h"

namespace culet {
namespace {

// An input, with a good copy and one of NaNs.
class PoisonedInput {
 public:
  PoisonedInput(const void* data, std::size_t bytes)
      : data_(const_cast<void*>(data)), good_(bytes), bytes_(bytes) {
    CheckCuda(cudaMemcpy(good_.data(), data, bytes, cudaMemcpyDeviceToDevice), "cudaMemcpy");
  }
  void Poison() const { CheckCuda(cudaMemsetAsync(data_, 0xff, bytes_, nullptr), "poison"); }
  LateInput late() const { return {data_, good_.data(), static_cast<std::int64_t>(bytes_)}; }

 private:
  void* data_;
  DeviceMemory good_;
  std::size_t bytes_;
};

// From the first to the last element.
std::size_t SpanOf(const MatrixLayout& layout) {
  if (layout.type == DataType::kNull) return 0;
  const bool by_rows = layout.order == Order::kRowMajor;
  const std::size_t lines = static_cast<std::size_t>(by_rows ? layout.rows : layout.cols);
  const std::size_t line = static_cast<std::size_t>(by_rows ? layout.cols : layout.rows);
  return ((lines - 1) * static_cast<std::size_t>(layout.ld) + line) * SizeOf(layout.type);
}

class Bench {
 public:
  explicit Bench(const std::vector<Job>& jobs) : workspace_memory_(LargestWorkspace(jobs).total()) {
    const auto made =
        InitWorkspace(LargestWorkspace(jobs), workspace_memory_.data(), workspace_memory_.bytes());
    Check(made.status(), "InitWorkspace");
    workspace_ = *made;
    std::size_t most = 0;
    for (const Job& job : jobs) most = std::max(most, job.image_bytes);
    image_ = std::make_unique<DeviceMemory>(most);
    CheckCuda(cudaMemset(image_->data(), kPoisonByte, most), "cudaMemset");
  }

  // Three times, the third with the job twice in a row; empty, or what went wrong.
  std::string Try(const Job& job, const std::vector<PoisonedInput>& inputs) {
    const Tally start;
    CheckCuda(cudaMemcpy(tally_.data(), &start, sizeof start, cudaMemcpyHostToDevice), "tally");
    CheckCuda(cudaMemset(early_.data(), 0, sizeof(unsigned)), "early");
    for (int round = 0; round < 3; ++round) {
      LateInputs late;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        inputs[i].Poison();
        late.all[i] = inputs[i].late();
      }
      CheckCuda(WriteLate(late, image_->data(), static_cast<std::int64_t>(job.image_bytes),
                          reinterpret_cast<unsigned*>(early_.data()), nullptr),
                "WriteLate");
      Check(job.launch(image_->data(), workspace_, nullptr), job.name);
      if (round == 2) Check(job.launch(image_->data(), workspace_, nullptr), job.name);
      OutputChecks checks;
      checks.outputs[0] = {image_->data(), job.expected->data(),
                           static_cast<std::int64_t>(job.image_bytes), 0};
      CheckCuda(CompareAndPoison(checks, reinterpret_cast<Tally*>(tally_.data()), nullptr),
                "CompareAndPoison");
    }
    Tally found;
    unsigned early = 0;
    CheckCuda(cudaMemcpy(&found, tally_.data(), sizeof found, cudaMemcpyDeviceToHost), job.name);
    CheckCuda(cudaMemcpy(&early, early_.data(), sizeof early, cudaMemcpyDeviceToHost), job.name);
    if (found.wrong == 0 && early == 0) return {};
    return fmt::format("{} groups of 16 bytes are wrong, {} bytes of D were written early",
                       found.wrong, early);
  }

 private:
  DeviceMemory workspace_memory_;
  Workspace workspace_;
  std::unique_ptr<DeviceMemory> image_;
  DeviceMemory tally_{sizeof(Tally)}, early_{sizeof(unsigned)};
};

// A dependent that copies its input to its output at once.
Job ImpatientJob(std::byte* input, std::size_t bytes) {
  Job job;
  job.name = "a kernel that does not wait";
  job.image_bytes = 2 * kGuardBytes + bytes;
  job.expected = std::make_shared<DeviceMemory>(job.image_bytes);
  CheckCuda(cudaMemset(job.expected->data(), kPoisonByte, job.image_bytes), "cudaMemset");
  CheckCuda(cudaMemset(input, 7, bytes), "cudaMemset");
  CheckCuda(cudaMemset(job.expected->data() + kGuardBytes, 7, bytes), "cudaMemset");
  job.launch = [input, bytes](std::byte* image, Workspace&, cudaStream_t stream) {
    CheckCuda(
        CopyWithoutWaiting(image + kGuardBytes, input, static_cast<std::int64_t>(bytes), stream),
        "CopyWithoutWaiting");
    return Status();
  };
  return job;
}

}  // namespace

bool CheckPredecessors(Gemm& gemm) {
  {
    DeviceMemory input(4096);
    std::vector<Job> impatient;
    impatient.push_back(ImpatientJob(input.data(), input.bytes()));
    std::vector<PoisonedInput> inputs;
    inputs.emplace_back(input.data(), input.bytes());
    if (Bench(impatient).Try(impatient[0], inputs).empty())
      Die("a kernel that does not wait passed");
  }
  JobOptions options;
  options.pdl_only = true;
  const std::vector<Job> jobs = MakeJobs(gemm, options);
  Bench bench(jobs);
  std::map<std::string, int> families;
  int wrong = 0;
  for (const Job& job : jobs) {
    const GemmArgs& args = job.scratch->args();
    std::vector<PoisonedInput> inputs;
    inputs.emplace_back(args.A, SpanOf(args.Adesc));
    if (args.U != nullptr) inputs.emplace_back(args.U, SpanOf(args.Udesc));
    if (args.beta != 0.0f) inputs.emplace_back(args.C, SpanOf(args.Cdesc));
    // A plan binds the bias, as it binds B and V, but pdl promises nothing of it.
    if (const Bias& bias = args.operation.bias; bias.data != nullptr) {
      inputs.emplace_back(bias.data, static_cast<std::size_t>(args.Bdesc.cols) * SizeOf(bias.type));
    }
    const std::string fault = bench.Try(job, inputs);
    ++families[job.family];
    if (fault.empty()) continue;
    if (++wrong <= 20) fmt::print("WRONG  {}: {}\n", job.name, fault);
  }
  for (const auto& [family, count] : families)
    fmt::print("predecessor: {:>5} cases of {}\n", count, family);
  fmt::print("predecessor: {} cases, {} wrong\n", jobs.size(), wrong);
  return wrong == 0 && !jobs.empty();
}

}  // namespace culet
