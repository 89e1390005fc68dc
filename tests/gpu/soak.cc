#include "soak.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "check_kernels.h"
#include "jobs.h"

namespace culet {
namespace {

constexpr int kGroup = kOutputsACheck;  // launches between two checks

std::size_t FreeDeviceBytes() {
  std::size_t free = 0, total = 0;
  CheckCuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

std::size_t ResidentHostBytes() {
  std::size_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// A stream with everything that its launches write.
class Lane {
 public:
  Lane(const std::vector<Job>& jobs, std::size_t first_job)
      : jobs_(jobs), next_(first_job), workspace_memory_(LargestWorkspace(jobs).total()) {
    CheckCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    const auto workspace = InitWorkspace(LargestWorkspace(jobs), workspace_memory_.data(),
                                         workspace_memory_.bytes(), stream_);
    Check(workspace.status(), "InitWorkspace");
    workspace_ = *workspace;
    std::size_t most = 0;
    for (const Job& job : jobs) most = std::max(most, job.image_bytes);
    for (int i = 0; i < kGroup; ++i) {
      images_.emplace_back(most);
      CheckCuda(cudaMemset(images_.back().data(), kPoisonByte, most), "cudaMemset");
    }
    const Tally start;
    CheckCuda(cudaMemcpy(tally_.data(), &start, sizeof start, cudaMemcpyHostToDevice), "tally");
    CheckCuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    Record();
  }
  ~Lane() {
    cudaGraphExecDestroy(graph_);
    cudaStreamDestroy(stream_);
  }
  Lane(const Lane&) = delete;

  // Four jobs back to back into four images, then one check of all of them.
  void LaunchGroup() {
    OutputChecks checks;
    for (int i = 0; i < kGroup; ++i) {
      const std::size_t index = next_++ % jobs_.size();
      const Job& job = jobs_[index];
      std::byte* image = images_[static_cast<std::size_t>(i)].data();
      Check(job.launch(image, workspace_, stream_), job.name);
      checks.outputs[i] = {image, job.expected->data(), static_cast<std::int64_t>(job.image_bytes),
                           static_cast<int>(index)};
      ++launches_[job.family];
    }
    CheckCuda(CompareAndPoison(checks, tally(), stream_), "CompareAndPoison");
  }

  void ReplayGraph() {
    CheckCuda(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch");
    for (const auto& [family, count] : recorded_) launches_[family] += count;
    graph_launches_ += graph_size();
  }

  // Waits for everything; the job that went wrong, or -1.
  Tally Finish() {
    Tally found;
    CheckCuda(cudaMemcpyAsync(&found, tally_.data(), sizeof found, cudaMemcpyDeviceToHost, stream_),
              "tally");
    CheckCuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return found;
  }

  const std::map<std::string, long>& launches() const { return launches_; }
  long graph_launches() const { return graph_launches_; }
  /// Launches in the graph: every job, the first ones twice when their number is no multiple of 4.
  long graph_size() const {
    return static_cast<long>((jobs_.size() + kGroup - 1) / kGroup * kGroup);
  }

 private:
  Tally* tally() const { return reinterpret_cast<Tally*>(tally_.data()); }

  void Record() {
    CheckCuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    const std::size_t first = next_;
    for (long i = 0; i < graph_size(); i += kGroup) LaunchGroup();
    next_ = first;
    cudaGraph_t graph = nullptr;
    CheckCuda(cudaStreamEndCapture(stream_, &graph), "capture");
    CheckCuda(cudaGraphInstantiate(&graph_, graph, 0), "cudaGraphInstantiate");
    CheckCuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    recorded_.swap(launches_);
  }

  const std::vector<Job>& jobs_;
  std::size_t next_;
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
  DeviceMemory workspace_memory_;
  Workspace workspace_;
  std::vector<DeviceMemory> images_;
  DeviceMemory tally_{sizeof(Tally)};
  std::map<std::string, long> launches_, recorded_;
  long graph_launches_ = 0;
};

// One thread's lanes in turn: a graph, then as many launches without one.
void Drive(const std::vector<Lane*>& lanes, long launches_a_lane) {
  for (long done = 0; done < launches_a_lane; done += 2 * lanes.front()->graph_size()) {
    for (Lane* lane : lanes) lane->ReplayGraph();
    for (long i = 0; i < lanes.front()->graph_size(); i += kGroup)
      for (Lane* lane : lanes) lane->LaunchGroup();
  }
}

// A run of all lanes; false when an output differed, which is printed.
bool Run(std::vector<std::unique_ptr<Lane>>& lanes, const std::vector<Job>& jobs, int threads,
         long launches_a_lane) {
  int device = 0;
  CheckCuda(cudaGetDevice(&device), "cudaGetDevice");
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    std::vector<Lane*> own;
    for (std::size_t i = static_cast<std::size_t>(t); i < lanes.size();
         i += static_cast<std::size_t>(threads))
      own.push_back(lanes[i].get());
    workers.emplace_back([own, device, launches_a_lane] {
      CheckCuda(cudaSetDevice(device), "cudaSetDevice");
      Drive(own, launches_a_lane);
    });
  }
  for (std::thread& worker : workers) worker.join();
  bool right = true;
  for (const auto& lane : lanes) {
    const Tally found = lane->Finish();
    if (found.wrong == 0) continue;
    right = false;
    fmt::print("WRONG  {} groups of 16 bytes; one in {}\n", found.wrong,
               jobs[static_cast<std::size_t>(found.job)].name);
  }
  return right;
}

// A check that cannot fail proves nothing: one bit of an expected image is turned for one group.
void CheckTheCheck(const std::vector<Job>& jobs) {
  std::byte* bit = jobs[0].expected->data() + kGuardBytes;
  const auto turn = [&] {
    std::byte value{};
    CheckCuda(cudaMemcpy(&value, bit, 1, cudaMemcpyDeviceToHost), "cudaMemcpy");
    value ^= std::byte{1};
    CheckCuda(cudaMemcpy(bit, &value, 1, cudaMemcpyHostToDevice), "cudaMemcpy");
  };
  Lane lane(jobs, 0);
  turn();
  lane.LaunchGroup();
  const Tally found = lane.Finish();
  turn();
  if (found.wrong != 1 || found.job != 0)
    Die(fmt::format("a turned bit was found {} times, in job {}", found.wrong, found.job));
}

}  // namespace

bool Soak(Gemm& gemm, const SoakOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto setup = Clock::now();
  std::vector<Job> jobs = MakeJobs(gemm, {});
  for (Job& job : MakeQuantiserJobs(false)) jobs.push_back(std::move(job));
  CheckTheCheck(jobs);
  std::vector<std::unique_ptr<Lane>> lanes;
  // Spread over the jobs, so that different kernels run beside each other.
  for (int i = 0; i < options.streams; ++i)
    lanes.push_back(std::make_unique<Lane>(jobs, static_cast<std::size_t>(i) * jobs.size() /
                                                     static_cast<std::size_t>(options.streams)));
  const long warm_up = 2 * static_cast<long>(jobs.size());
  bool right = Run(lanes, jobs, options.threads, warm_up);
  fmt::print("soak: {} jobs, set up in {:.1f} s\n", jobs.size(), seconds_since(setup));

  const std::size_t free_before = FreeDeviceBytes(), host_before = ResidentHostBytes();
  const auto start = Clock::now();
  const long each = options.launches / options.streams;
  constexpr int kParts = 4;
  bool constant = true;
  for (int part = 0; part < kParts && right; ++part) {
    right = Run(lanes, jobs, options.threads, (each + kParts - 1) / kParts);
    constant = constant && FreeDeviceBytes() == free_before;
  }
  const double seconds = seconds_since(start);

  std::map<std::string, long> families;
  long all = 0, in_graphs = 0;
  for (const auto& lane : lanes) {
    for (const auto& [family, count] : lane->launches()) families[family] += count, all += count;
    in_graphs += lane->graph_launches();
  }
  for (const auto& [family, count] : families)
    fmt::print("soak: {:>9} launches of {}\n", count, family);
  fmt::print("soak: {} launches, {} of them in graphs, {} streams, {} threads, {:.1f} s: {}\n", all,
             in_graphs, options.streams, options.threads, seconds,
             right ? "every output equal to the first, bit by bit" : "WRONG");
  fmt::print("soak: free device memory {} bytes before, {} after; host {:+.1f} MB\n", free_before,
             FreeDeviceBytes(),
             (static_cast<double>(ResidentHostBytes()) - static_cast<double>(host_before)) / 1e6);
  return right && constant && all >= options.launches;
}

}  // namespace culet
