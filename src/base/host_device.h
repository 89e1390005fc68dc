// What the operating system tells of the host, each fact by a function that tests can feed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace culet {

/// Threads that CULET_THREADS asks for: its value if that is a whole number from 1 to
/// kMaxHostThreads, 0 if it is anything else. `text` may be null (0).
int ParseThreads(const char* text) noexcept;
inline constexpr int kMaxHostThreads = 1024;

/// CPUs that a cgroup's cpu.max, "quota period" or "max period", allows, rounded up; 0 for no
/// limit.
int ParseCpuQuota(std::string_view text) noexcept;

/// CPUs that the scheduler may give this process: its affinity mask, and no more than its cgroups'
/// quotas (base/cgroup.h), beyond which threads would only wait for each other.
int AvailableCpus();

/// Bytes of a cache size as sysfs writes it, "491520K"; 0 for anything else.
std::size_t ParseCacheSize(std::string_view text) noexcept;

/// The last-level caches of all CPUs together; 0 when nobody tells.
std::size_t LastLevelCacheBytes();

/// "cpu/avx3_dl/2t/llc480m".
std::string HostClass(std::string_view isa, int threads, std::size_t cache_bytes);

/// Memory that can be had without swapping.
std::size_t AvailableMemoryBytes();

}  // namespace culet
