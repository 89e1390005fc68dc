#include "base/host_device.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>

#include "base/host_simd.h"
#include "culet/device.h"

namespace culet {
namespace {

std::string FirstLine(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// The value of the first line "key   : value".
std::string ValueOf(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin != std::string::npos ? line.substr(begin) : std::string();
  }
  return {};
}

std::size_t ParseNumber(std::string_view text) noexcept {
  std::size_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Inactive page cache of the cgroup.
std::size_t InactiveFileBytes() {
  constexpr std::string_view kKey = "inactive_file ";
  std::ifstream file("/sys/fs/cgroup/memory.stat");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kKey)) return ParseNumber(std::string_view(line).substr(kKey.size()));
  }
  return 0;
}

std::string CpuName() {
  if (std::string name = ValueOf("/proc/cpuinfo", "model name"); !name.empty()) return name;
  utsname system{};
  return uname(&system) == 0 ? fmt::format("{} CPU", system.machine) : "CPU";
}

std::size_t PhysicalMemoryBytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_bytes <= 0) return 0;
  const auto bytes = static_cast<std::size_t>(pages) * static_cast<std::size_t>(page_bytes);
  const std::size_t limit = ParseNumber(FirstLine("/sys/fs/cgroup/memory.max"));
  return limit > 0 ? std::min(bytes, limit) : bytes;
}

// What does not change while the process lives.
struct HostFacts {
  std::string name = CpuName();
  std::string isa = HostIsa();
  std::size_t cache_bytes = LastLevelCacheBytes();
  std::size_t memory_bytes = PhysicalMemoryBytes();
};

}  // namespace

std::size_t ParseCacheSize(std::string_view text) noexcept {
  std::size_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop == end) return 0;
  switch (*stop) {
    case 'K':
      return value << 10;
    case 'M':
      return value << 20;
    case 'G':
      return value << 30;
    default:
      return 0;
  }
}

std::size_t LastLevelCacheBytes() {
  const auto folder = [](long cpu, int index) {
    return fmt::format("/sys/devices/system/cpu/cpu{}/cache/index{}/", cpu, index);
  };
  std::size_t last_level = 0;
  int last_index = 0;
  for (int index = 0;; ++index) {
    const std::size_t level = ParseNumber(FirstLine(folder(0, index) + "level"));
    if (level == 0) break;
    if (level > last_level) last_index = index;
    last_level = std::max(last_level, level);
  }
  std::set<std::string> seen;  // each cache is listed by all CPUs that share it
  std::size_t bytes = 0;
  for (long cpu = 0; last_level > 0 && cpu < sysconf(_SC_NPROCESSORS_CONF); ++cpu) {
    const auto cache = folder(cpu, last_index);
    if (seen.insert(FirstLine(cache + "shared_cpu_list")).second) {
      bytes += ParseCacheSize(FirstLine(cache + "size"));
    }
  }
#ifdef _SC_LEVEL3_CACHE_SIZE
  // Containers may hide sysfs; the C library asks the CPU itself.
  for (const int name : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (bytes == 0) bytes = static_cast<std::size_t>(std::max(0L, sysconf(name)));
  }
#endif
  return bytes;
}

std::string HostClass(std::string_view isa, int threads, std::size_t cache_bytes) {
  return fmt::format("cpu/{}/{}t/llc{}m", isa, threads, cache_bytes >> 20);
}

std::size_t AvailableMemoryBytes() {
  std::size_t bytes = ParseNumber(ValueOf("/proc/meminfo", "MemAvailable")) << 10;
  const std::size_t limit = ParseNumber(FirstLine("/sys/fs/cgroup/memory.max"));
  if (limit > 0) {
    // What was read from files and not of late can go at any time.
    const std::size_t current = ParseNumber(FirstLine("/sys/fs/cgroup/memory.current"));
    const std::size_t files = InactiveFileBytes();
    const std::size_t used = current - std::min(current, files);
    bytes = std::min(bytes, limit - std::min(limit, used));
  }
  return bytes;
}

DeviceInfo HostDevice() {
  static const HostFacts facts;
  DeviceInfo device;
  device.name = facts.name;
  device.units = HostThreads();
  device.device_class = HostClass(facts.isa, device.units, facts.cache_bytes);
  device.cache_bytes = facts.cache_bytes;
  device.memory_bytes = facts.memory_bytes;
  return device;
}

}  // namespace culet
