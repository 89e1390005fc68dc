// gpu_check: what `culet verify` does not do on a GPU. scripts/gpu-check runs all of it.
//   gpu_check soak [LAUNCHES]   a million launches over eight streams and four threads
//   gpu_check predecessor       the contract of programmatic dependent launches
//   gpu_check gates             gates and exponentials of every FP32 number
//   gpu_check grouped           products by groups
//   gpu_check tiny PREFIX...    each kernel whose id starts with a prefix once, and
//                               "quantise_e4m3"; for compute-sanitizer
//   gpu_check tiny --unwrapped PREFIX...   without shapes that go around a kernel's ring
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "check_kernels.h"
#include "culet/gemm.h"
#include "gates.h"
#include "grouped.h"
#include "jobs.h"
#include "predecessor.h"
#include "soak.h"

namespace culet {
namespace {

int Usage() {
  fmt::print(
      "usage: gpu_check soak [LAUNCHES] | predecessor | gates | grouped | tiny [--unwrapped] "
      "PREFIX...\n");
  return 2;
}

bool RunTiny(Gemm& gemm, bool unwrapped, const std::vector<std::string>& prefixes) {
  std::size_t count = 0;
  for (const std::string& prefix : prefixes) {
    JobOptions options;
    options.prefix = prefix;
    options.tiny = true;
    options.unwrapped = unwrapped;
    const bool quantiser = prefix == "quantise_e4m3";
    const std::vector<Job> jobs = quantiser ? MakeQuantiserJobs(true) : MakeJobs(gemm, options);
    if (jobs.empty()) Die("no kernel's id starts with " + prefix);
    count += jobs.size();
    if (!quantiser) continue;  // MakeJobs has launched and judged the others
    for (const Job& job : jobs) {
      DeviceMemory image(job.image_bytes), tally(sizeof(Tally));
      const Tally start;
      Tally found;
      Workspace none;
      CheckCuda(cudaMemset(image.data(), kPoisonByte, job.image_bytes), "cudaMemset");
      CheckCuda(cudaMemcpy(tally.data(), &start, sizeof start, cudaMemcpyHostToDevice), "tally");
      Check(job.launch(image.data(), none, nullptr), job.name);
      OutputChecks checks;
      checks.outputs[0] = {image.data(), job.expected->data(),
                           static_cast<std::int64_t>(job.image_bytes), 0};
      CheckCuda(CompareAndPoison(checks, reinterpret_cast<Tally*>(tally.data()), nullptr), "check");
      CheckCuda(cudaMemcpy(&found, tally.data(), sizeof found, cudaMemcpyDeviceToHost), job.name);
      if (found.wrong != 0) Die(job.name + ": differs from the host's quantiser");
    }
  }
  CheckCuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  fmt::print("tiny: {} launches right\n", count);
  return true;
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return Usage();
  Result<Gemm> gemm = Gemm::Create({"cuda", {}});
  Check(gemm.status(), "no GPU");
  const std::string& what = arguments[0];
  bool right = false;
  if (what == "soak" && arguments.size() <= 2) {
    SoakOptions options;
    if (arguments.size() == 2) options.launches = std::atol(arguments[1].c_str());
    right = options.launches > 0 && Soak(*gemm, options);
  } else if (what == "predecessor" && arguments.size() == 1) {
    right = CheckPredecessors(*gemm);
  } else if (what == "gates" && arguments.size() == 1) {
    right = CheckGates();
  } else if (what == "grouped" && arguments.size() == 1) {
    const bool blocks = CheckGrouped();
    right = CheckGroupedSwaps() && blocks;
  } else if (what == "tiny" && arguments.size() > 1) {
    const bool unwrapped = arguments[1] == "--unwrapped";
    right = RunTiny(*gemm, unwrapped, {arguments.begin() + 1 + unwrapped, arguments.end()});
  } else {
    return Usage();
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace culet

int main(int argc, char** argv) { return culet::Main({argv + 1, argv + argc}); }
