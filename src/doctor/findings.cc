#include "doctor/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <thread>

namespace culet {
namespace {

using Severity = Finding::Severity;

constexpr int kOldestArch = 800;
constexpr int kHopper = 900;

class Finder {
 public:
  explicit Finder(const Diagnosis& diagnosis) : d_(diagnosis) {}

  std::vector<Finding> Run() {
    Environment();
    Driver();
    for (std::size_t i = 0; i < d_.driver.gpus.size(); ++i) Gpu(i, d_.driver.gpus[i]);
    Cpu();
    Devices();
    Libraries();
    for (const CacheState& cache : d_.caches) Cache(cache);
    Coverage();
    if (d_.sums && !d_.sums->measured) {
      Add(Severity::kNote, "sums over the GPUs", "were not measured: sizes are those of others",
          fmt::format("culet tune --tp {} --device cuda", d_.gpus()));
    }
    std::ranges::stable_sort(found_, std::ranges::greater(), &Finding::severity);
    return std::move(found_);
  }

 private:
  void Add(Severity severity, std::string about, std::string what, std::string remedy = {}) {
    found_.push_back({severity, std::move(about), std::move(what), std::move(remedy)});
  }

  void Environment() {
    constexpr std::array kKnown = {
        "CULET_CACHE", "CULET_SITE_CACHE", "CULET_TUNED",    "CULET_RECORD",   "CULET_THREADS",
        "CULET_SIMD",  "CULET_PROVIDERS",  "CULET_CUBLASLT", "CULET_ONEDNN",   "CULET_LIBRARY",
        "CULET_NVTX",  "CULET_LOG",        "CULET_NCCL",     "CULET_EXCHANGE", "CULET_RANK",
        "CULET_RANKS", "CULET_MEETING",    "CULET_RANK_WAIT"};
    for (const auto& [name, value] : d_.environment) {
      if (name.starts_with("CULET_") && std::ranges::find(kKnown, name) == kKnown.end()) {
        Add(Severity::kNote, "environment",
            fmt::format("{} is set, and culet does not read it", name),
            fmt::format("the variables that it reads are {}", fmt::join(kKnown, ", ")));
      }
      const bool names_file = name == "CULET_CUBLASLT" || name == "CULET_ONEDNN";
      std::error_code ignored;
      if (names_file && value.find('/') != std::string::npos &&
          !std::filesystem::exists(value, ignored)) {
        Add(Severity::kBroken, "environment",
            fmt::format("{} is '{}', which is no file", name, value),
            "name the library's file, or unset it");
      }
    }
  }

  bool CudaDevice() const {
    return std::ranges::any_of(d_.devices, [](const DeviceState& d) { return d.info.arch != 0; });
  }

  void Driver() {
    std::error_code ignored;
    const bool node = std::filesystem::exists("/dev/nvidia0", ignored) ||
                      std::filesystem::exists("/proc/driver/nvidia/version", ignored);
    if (!d_.driver.found && node) {
      Add(Severity::kBroken, "driver",
          fmt::format("there is an NVIDIA GPU, but its driver's libraries are not usable: {}",
                      d_.driver.note),
          "in a container, start it with --gpus all (NVIDIA's container toolkit); else install the "
          "driver anew");
    }
    if (d_.driver.gpus.empty()) return;
    if (!d_.with_cuda) {
      Add(Severity::kSlow, "build",
          "there is a GPU, and this culet was built without CUDA parts: products run on the CPU",
          "install a wheel with CUDA, or build with -DCULET_CUDA=ON where nvcc is");
    } else if (!CudaDevice()) {
      Add(Severity::kBroken, "driver",
          fmt::format("there are {} GPUs, but CUDA gives none: {}", d_.driver.gpus.size(),
                      d_.cuda_note),
          "see CUDA_VISIBLE_DEVICES and the driver's version; nvidia-smi shows both");
    }
  }

  void Gpu(std::size_t number, const GpuState& gpu) {
    const std::string about = fmt::format("gpu {}", number);
    if (gpu.arch != 0 && gpu.arch < kOldestArch) {
      Add(Severity::kSlow, about,
          fmt::format("{} has compute capability {}.{}; culet's kernels need 8.0", gpu.name,
                      gpu.arch / 100, gpu.arch % 100 / 10),
          "use a newer GPU, or the CPU (device=\"cpu\")");
    } else if (gpu.arch != 0 && gpu.arch != kHopper) {
      Add(Severity::kSlow, about,
          fmt::format(
              "{} is no Hopper GPU: culet's fastest kernels are for compute capability 9.0, "
              "others run the kernels for any GPU and cuBLASLt's",
              gpu.name),
          "let cuBLASLt take part (pip install nvidia-cublas), and tune");
    }
    const bool holds = gpu.held_clock_mhz > 0 && gpu.held_clock_mhz < 0.98 * gpu.max_clock_mhz;
    if (holds) {
      Add(Severity::kSlow, about,
          fmt::format("the applications' clock is {:.0f} MHz, the highest is {:.0f}",
                      gpu.held_clock_mhz, gpu.max_clock_mhz),
          fmt::format("sudo nvidia-smi -i {} -rac, and -rgc where clocks were locked", number));
    }
    if (gpu.default_limit_watts > 0 && gpu.power_limit_watts < 0.98 * gpu.default_limit_watts) {
      Add(Severity::kSlow, about,
          fmt::format("the power limit is {:.0f} W, the default {:.0f} W: large products run at "
                      "lower clocks",
                      gpu.power_limit_watts, gpu.default_limit_watts),
          fmt::format("sudo nvidia-smi -i {} -pl {:.0f}, where cooling and supply allow it", number,
                      gpu.default_limit_watts));
    }
    std::vector<std::string> reasons = gpu.throttled;
    std::erase(reasons, "the applications' clock");  // said above
    if (!reasons.empty()) {
      Add(Severity::kSlow, about,
          fmt::format("clocks are held back just now by {}", fmt::join(reasons, ", ")),
          "wait until it is idle and cool, then measure; nvidia-smi -q -d PERFORMANCE shows it");
    }
    if (gpu.processes > 0) {
      Add(Severity::kSlow, about,
          fmt::format("{} process{} compute on it ({} % busy, {:.1f} of {:.1f} GiB in use): times "
                      "that are measured now are disturbed",
                      gpu.processes, gpu.processes == 1 ? "" : "es", std::max(gpu.busy_percent, 0),
                      static_cast<double>(gpu.used_bytes) / (1 << 30),
                      static_cast<double>(gpu.memory_bytes) / (1 << 30)),
          "tune on an idle GPU");
    }
    if (gpu.mig == 1) {
      Add(Severity::kNote, about, "MIG is on: a part of the GPU is a device class of its own",
          "tune in the same kind of instance that serves");
    }
    if (gpu.persistence == 0) {
      Add(Severity::kNote, about, "persistence mode is off: each first use initialises the driver",
          fmt::format("sudo nvidia-smi -i {} -pm 1", number));
    }
  }

  void Cpu() {
    for (const Status& status : {CheckHostThreads(), CheckHostSimd()}) {
      if (!status.ok()) {
        Add(Severity::kBroken, "environment", status.message(), "unset the variable, or mend it");
      }
    }
    if (!d_.simd_levels.empty() && d_.simd_levels.front() == "scalar") {
      Add(Severity::kSlow, "cpu", "the CPU's kernels run without SIMD",
          std::getenv("CULET_SIMD") != nullptr
              ? "unset CULET_SIMD"
              : "culet's kernels need AVX2 or newer; use another machine");
    } else if (const char* cap = std::getenv("CULET_SIMD"); cap != nullptr && *cap != '\0') {
      Add(Severity::kNote, "cpu", fmt::format("CULET_SIMD caps the CPU's kernels at {}", cap),
          "unset it for the best level of the CPU");
    }
    const int all = static_cast<int>(std::thread::hardware_concurrency());
    if (HostThreads() < all) {
      Add(Severity::kNote, "cpu",
          fmt::format("culet uses {} of {} CPU threads", HostThreads(), all),
          std::getenv("CULET_THREADS") != nullptr
              ? "CULET_THREADS says so"
              : "the process's affinity or its cgroup's quota says so; CULET_THREADS overrides it");
    }
  }

  void Devices() {
    for (const DeviceState& device : d_.devices) {
      if (device.product.ok()) continue;
      Add(Severity::kBroken, device.selector,
          fmt::format("a small product fails: {}", device.product.message()),
          fmt::format("run culet verify --quick --device {} and report what it says",
                      device.selector));
    }
  }

  void Libraries() {
    for (const LibraryState& library : d_.libraries) {
      if (library.found || library.name == "NCCL") continue;
      const bool left_out = library.note.starts_with("left out");
      if (library.name == "cuBLASLt" && CudaDevice()) {
        Add(left_out ? Severity::kNote : Severity::kSlow, library.name,
            fmt::format("does not take part: {}", library.note),
            left_out ? "unset CULET_PROVIDERS"
                     : "pip install nvidia-cublas, or set CULET_CUBLASLT to its file");
      }
      if (library.name == "oneDNN") {
        Add(Severity::kNote, library.name,
            left_out ? fmt::format("does not take part: {}", library.note) : "is not installed",
            left_out ? "unset CULET_PROVIDERS"
                     : "pip install onednn-cpu-gomp, or set CULET_ONEDNN to its file: on CPUs with "
                       "AMX or AVX-512 BF16 it wins "
                       "products of many rows");
      }
    }
  }

  void Cache(const CacheState& cache) {
    const std::string about = fmt::format("{} cache", ToString(cache.layer));
    if (cache.path.empty()) {
      if (cache.layer != CacheLayer::kUser) return;
      Add(cache.status.ok() ? Severity::kNote : Severity::kSlow, about,
          cache.status.ok() ? "the cache is off: what is measured is forgotten"
                            : cache.status.message(),
          "set CULET_CACHE to a file");
      return;
    }
    if (!cache.status.ok()) {
      Add(Severity::kBroken, about, cache.status.message(),
          "move the file away, or name another with CULET_CACHE");
      return;
    }
    if (cache.layer == CacheLayer::kUser && !cache.writable) {
      Add(Severity::kNote, about,
          fmt::format("'{}' cannot be written: new measurements are not kept", cache.path),
          "set CULET_CACHE to a file that this user can write");
    }
    if (cache.damaged > 0) {
      Add(Severity::kNote, about,
          fmt::format("'{}' has {} damaged lines, which are not used", cache.path, cache.damaged),
          fmt::format("culet cache gc {}", cache.path));
    }
  }

  // Whether anything was measured for each device.
  void Coverage() {
    for (const DeviceState& device : d_.devices) {
      if (device.measured > 0) continue;
      if (device.info.arch == 0 && CudaDevice()) continue;  // the GPU is what will be used
      std::vector<std::string> others;
      for (const CacheState& cache : d_.caches) {
        for (const std::string& other : cache.device_classes) {
          const std::string kind = device.info.device_class.substr(0, 4);
          if (other.starts_with(kind)) others.push_back(other);
        }
      }
      std::string what =
          fmt::format("no choice was measured for {} ({}): kernels are chosen by prediction",
                      device.selector, device.info.device_class);
      if (!others.empty()) {
        what += fmt::format("; the caches hold records of {}", fmt::join(others, ", "));
      }
      Add(Severity::kSlow, "cache", std::move(what),
          fmt::format("culet tune --model CONFIG --m 1,16,128{}",
                      device.info.arch != 0 ? " --device " + device.selector : ""));
    }
  }

  const Diagnosis& d_;
  std::vector<Finding> found_;
};

}  // namespace

std::vector<Finding> FindingsOf(const Diagnosis& diagnosis) { return Finder(diagnosis).Run(); }

}  // namespace culet
