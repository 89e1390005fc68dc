// What this machine has for culet: driver, GPUs, libraries, caches; what is broken, what will be
// slow, and what to do about each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "culet/cache_layers.h"
#include "culet/device.h"
#include "culet/exchange_choice.h"

namespace culet {

/// One thing to know, and what to do about it.
struct Finding {
  enum class Severity : std::uint8_t {
    kNote = 0,    ///< good to know
    kSlow = 1,    ///< right results, slower than this machine could
    kBroken = 2,  ///< something does not work
  } severity = Severity::kNote;
  std::string about;   ///< "driver", "gpu 0", "cuBLASLt", "cache", "environment", "cpu", ...
  std::string what;    ///< one sentence
  std::string remedy;  ///< what to do; may be empty for notes
};
/// "note", "slow", "broken".
const char* ToString(Finding::Severity) noexcept;

/// What NVIDIA's management library says of a GPU, visible to this process or not; 0 and "" are
/// unknown.
struct GpuState {
  std::string name, pci_bus_id;
  int arch = 0;                                                 ///< 900: compute capability 9.0
  double clock_mhz = 0, max_clock_mhz = 0, held_clock_mhz = 0;  ///< held: the applications' clock
  double memory_clock_mhz = 0;
  double power_watts = 0, power_limit_watts = 0, default_limit_watts = 0;
  int temperature = 0;                 ///< degrees Celsius
  std::vector<std::string> throttled;  ///< why clocks are below their highest now, without idling
  int persistence = -1, mig = -1;      ///< 0 off, 1 on
  int busy_percent = -1;
  int processes = -1;  ///< that compute on it
  std::uint64_t memory_bytes = 0, used_bytes = 0;
};

/// The driver as the management library knows it.
struct DriverState {
  bool found = false;
  std::string version;       ///< "570.133.20"
  std::string cuda_version;  ///< the newest that it serves, "12.8"
  std::string note;          ///< why it was not found, or not asked
  std::vector<GpuState> gpus;
};

/// A library that culet looks for at run time.
struct LibraryState {
  std::string name;  ///< "cuBLASLt", "oneDNN", "NCCL"
  bool found = false;
  std::string version, path;
  std::string note;  ///< why it is not used, or what it is for
};

/// A device of culet's, and how a small product on it went.
struct DeviceState {
  DeviceInfo info;
  std::string selector;  ///< "cpu", "cuda:0"
  std::string kernel;    ///< that computed the product
  Status product;        ///< whether it was right
  int measured = 0;      ///< problems with a measured choice
};

/// One cache file.
struct CacheState {
  CacheLayer layer = CacheLayer::kUser;
  std::string path;
  bool exists = false, writable = false;
  Status status;  ///< as CacheFile::List, but for a file that is not there
  int records = 0, damaged = 0, other_version = 0;
  std::vector<std::string> device_classes;  ///< of its records
};

struct Diagnosis {
  std::string version;  ///< culet's
  bool with_cuda = false, with_nvtx = false;
  std::string system;  ///< "Linux 6.1.0 x86_64"
  std::vector<std::string> simd_levels;
  DriverState driver;
  std::string cuda_note;  ///< why there is no CUDA device; empty when there is one
  std::vector<DeviceState> devices;
  std::vector<LibraryState> libraries;
  std::vector<CacheState> caches;
  /// How as many ranks as there are GPUs make their sums; none for fewer than two.
  std::optional<ExchangeChoice> sums;
  std::vector<std::pair<std::string, std::string>> environment;  ///< CULET_* and CUDA's
  std::vector<Finding> findings;                                 ///< worst first

  /// CUDA devices.
  int gpus() const;
  /// No finding is kBroken.
  bool ok() const noexcept;
  /// What there is, for people: several lines.
  std::string Facts() const;
  /// Facts and findings.
  std::string ToString() const;
};

struct DiagnoseOptions {
  std::string cache_path;  ///< as the argument of CacheFile::DefaultPath
  bool products = true;    ///< a small product on each device is computed and compared
  /// Another libnvidia-ml.so.1, for tests; "off": none.
  std::string nvml = {};
};

/// Looks at the machine. Takes a second or two: libraries are opened, and devices.
Diagnosis Diagnose(const DiagnoseOptions& options = {});

/// All of a Diagnosis as one JSON object; "ok" says whether nothing is broken.
std::string JsonOf(const Diagnosis& diagnosis);

}  // namespace culet
