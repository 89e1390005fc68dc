#include "doctor/nvml.h"
#include "doctor/close_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <memory>

namespace culet {
namespace {

// By their documented signatures and numbers: a machine that runs culet has no header of it. All
// functions return 0 on success.
using Device = void*;
constexpr unsigned kSmClock = 1, kMemoryClock = 2;
constexpr int kInsufficientSize = 7;
constexpr unsigned kTemperatureOfGpu = 0;

struct MemoryInfo {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
struct PciInfo {
  char legacy_id[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

class Nvml {
 public:
  explicit Nvml(const std::string& path)
      : library_(dlopen(path.empty() ? "libnvidia-ml.so.1" : path.c_str(), RTLD_LAZY)) {
    if (library_ == nullptr) {
      const char* const words = dlerror();
      error_ = fmt::format("NVIDIA's management library does not open ({})",
                           words != nullptr ? words : "no reason given");
      return;
    }
    if (const int code = Call<int()>("nvmlInit_v2"); code != 0) {
      const auto text = Find<const char*(int)>("nvmlErrorString");
      error_ = fmt::format("NVIDIA's management library does not start ({})",
                           text != nullptr ? text(code) : fmt::format("error {}", code));
      return;
    }
    started_ = true;
  }
  ~Nvml() {
    if (started_) static_cast<void>(Call<int()>("nvmlShutdown"));
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const std::string& error() const { return error_; }

  /// What the function returns; -1 where the library lacks it.
  template <class Signature, class... Args>
  int Call(const char* name, Args... args) const {
    const auto function = Find<Signature>(name);
    return function != nullptr ? function(args...) : -1;
  }

 private:
  template <class Signature>
  Signature* Find(const char* name) const {
    return reinterpret_cast<Signature*>(dlsym(library_.get(), name));
  }

  std::unique_ptr<void, CloseLibrary> library_;
  std::string error_;
  bool started_ = false;
};

std::vector<std::string> ReasonsOf(unsigned long long bits) {
  struct Reason {
    unsigned long long bit;
    const char* words;
  };
  // Idling, and what a display asks for, are no news.
  constexpr std::array kReasons = {
      Reason{0x02, "the applications' clock"}, Reason{0x04, "the power limit"},
      Reason{0x08, "a hardware slowdown"},     Reason{0x10, "another GPU's clock (sync boost)"},
      Reason{0x20, "temperature (software)"},  Reason{0x40, "temperature (hardware)"},
      Reason{0x80, "the power brake"}};
  std::vector<std::string> words;
  for (const Reason& reason : kReasons) {
    if ((bits & reason.bit) != 0) words.emplace_back(reason.words);
  }
  return words;
}

GpuState AskGpu(const Nvml& nvml, Device gpu) {
  GpuState state;
  std::array<char, 96> text{};
  if (nvml.Call<int(Device, char*, unsigned)>("nvmlDeviceGetName", gpu, text.data(),
                                              static_cast<unsigned>(text.size())) == 0) {
    state.name = text.data();
  }
  PciInfo pci{};
  if (nvml.Call<int(Device, PciInfo*)>("nvmlDeviceGetPciInfo_v3", gpu, &pci) == 0) {
    state.pci_bus_id = pci.bus_id;
  }
  int major = 0, minor = 0;
  if (nvml.Call<int(Device, int*, int*)>("nvmlDeviceGetCudaComputeCapability", gpu, &major,
                                         &minor) == 0) {
    state.arch = 100 * major + 10 * minor;
  }
  const auto clock = [&](const char* name, unsigned kind) {
    unsigned mhz = 0;
    const int code = nvml.Call<int(Device, unsigned, unsigned*)>(name, gpu, kind, &mhz);
    return code == 0 ? static_cast<double>(mhz) : 0.0;
  };
  state.clock_mhz = clock("nvmlDeviceGetClockInfo", kSmClock);
  state.max_clock_mhz = clock("nvmlDeviceGetMaxClockInfo", kSmClock);
  state.held_clock_mhz = clock("nvmlDeviceGetApplicationsClock", kSmClock);
  state.memory_clock_mhz = clock("nvmlDeviceGetClockInfo", kMemoryClock);
  const auto watts = [&](const char* name) {
    unsigned milliwatts = 0;
    const int code = nvml.Call<int(Device, unsigned*)>(name, gpu, &milliwatts);
    return code == 0 ? milliwatts / 1e3 : 0.0;
  };
  state.power_watts = watts("nvmlDeviceGetPowerUsage");
  state.power_limit_watts = watts("nvmlDeviceGetEnforcedPowerLimit");
  state.default_limit_watts = watts("nvmlDeviceGetPowerManagementDefaultLimit");
  unsigned degrees = 0;
  if (nvml.Call<int(Device, unsigned, unsigned*)>("nvmlDeviceGetTemperature", gpu,
                                                  kTemperatureOfGpu, &degrees) == 0) {
    state.temperature = static_cast<int>(degrees);
  }
  unsigned long long reasons = 0;
  if (nvml.Call<int(Device, unsigned long long*)>("nvmlDeviceGetCurrentClocksThrottleReasons", gpu,
                                                  &reasons) == 0) {
    state.throttled = ReasonsOf(reasons);
  }
  int persistence = 0;
  if (nvml.Call<int(Device, int*)>("nvmlDeviceGetPersistenceMode", gpu, &persistence) == 0) {
    state.persistence = persistence;
  }
  unsigned mig = 0, pending = 0;
  if (nvml.Call<int(Device, unsigned*, unsigned*)>("nvmlDeviceGetMigMode", gpu, &mig, &pending) ==
      0) {
    state.mig = static_cast<int>(mig);
  }
  Utilization busy{};
  if (nvml.Call<int(Device, Utilization*)>("nvmlDeviceGetUtilizationRates", gpu, &busy) == 0) {
    state.busy_percent = static_cast<int>(busy.gpu);
  }
  unsigned processes = 0;  // room for none: asked for their number alone
  const int code = nvml.Call<int(Device, unsigned*, void*)>(
      "nvmlDeviceGetComputeRunningProcesses_v3", gpu, &processes, static_cast<void*>(nullptr));
  if (code == 0 || code == kInsufficientSize) state.processes = static_cast<int>(processes);
  MemoryInfo memory{};
  if (nvml.Call<int(Device, MemoryInfo*)>("nvmlDeviceGetMemoryInfo", gpu, &memory) == 0) {
    state.memory_bytes = memory.total;
    state.used_bytes = memory.used;
  }
  return state;
}

}  // namespace

DriverState AskNvml(const std::string& path) {
  DriverState driver;
  const Nvml nvml(path);
  if (!nvml.error().empty()) {
    driver.note = nvml.error();
    return driver;
  }
  driver.found = true;
  std::array<char, 96> version{};
  if (nvml.Call<int(char*, unsigned)>("nvmlSystemGetDriverVersion", version.data(),
                                      static_cast<unsigned>(version.size())) == 0) {
    driver.version = version.data();
  }
  int cuda = 0;
  if (nvml.Call<int(int*)>("nvmlSystemGetCudaDriverVersion_v2", &cuda) == 0) {
    driver.cuda_version = fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10);
  }
  unsigned count = 0;
  static_cast<void>(nvml.Call<int(unsigned*)>("nvmlDeviceGetCount_v2", &count));
  for (unsigned i = 0; i < count; ++i) {
    Device gpu = nullptr;
    if (nvml.Call<int(unsigned, Device*)>("nvmlDeviceGetHandleByIndex_v2", i, &gpu) == 0) {
      driver.gpus.push_back(AskGpu(nvml, gpu));
    }
  }
  return driver;
}

}  // namespace culet
