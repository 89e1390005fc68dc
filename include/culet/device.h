// The machine: which devices there are, what they are called in a cache, how fast they are.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "culet/status.h"
#include "culet/types.h"

namespace culet {

/// Rates that the cost model and the roofline use. `measured` tells a measurement of this machine
/// from the table of typical values for its class.
struct HardwareRates {
  double read_gbps = 0;  ///< 1e9 bytes/s, all units reading data larger than the caches
  double gflops = 0;     ///< 1e9 operations/s of the unit that serves `type` products
  double launch_us = 0;  ///< of an empty kernel
  bool measured = false;
};

/// One device of the machine.
struct DeviceInfo {
  std::string name;  ///< for people: the CPU's or GPU's marketing name
  /// For caches: what decides speed, not the marketing name.
  /// "cpu/avx3_dl/2t/llc480m" or "cuda/900/132sm/1980mhz/l2-60m/mem150g/4800gbps".
  std::string device_class;
  int arch = 0;                 ///< as in GemmDesc
  int ordinal = -1;             ///< CUDA device number; -1 for the host
  int units = 1;                ///< threads in use, or multiprocessors
  std::size_t cache_bytes = 0;  ///< last-level cache
  std::size_t memory_bytes = 0;
  // Of a GPU, as it says itself; 0 is unknown.
  double clock_mhz = 0;    ///< the highest of its multiprocessors
  double memory_gbps = 0;  ///< 1e9 bytes/s that its memory's interface moves at most
  double power_watts = 0;  ///< the power limit in force
};

/// The host CPU with the threads now in use.
DeviceInfo HostDevice();

/// The host first, then every CUDA device. Without a driver the list holds the host alone, and
/// `cuda_note` (may be null) receives one sentence that says why.
std::vector<DeviceInfo> Devices(std::string* cuda_note = nullptr);

/// The device named "cpu", "cuda" or "cuda:N". Errors: NOT_FOUND, with the devices there are;
/// as CheckHostThreads and CheckHostSimd for "cpu".
Result<DeviceInfo> FindDevice(const std::string& name);

/// Typical rates of the device's class for products whose A or B has `type`; no measurement.
HardwareRates TypicalRates(const DeviceInfo& device, DataType type);

/// Measures the host's read bandwidth over more than its last-level cache and its FP32
/// multiply-add rate with the threads in use. Takes about half a second, longer in a virtual
/// machine whose memory was not touched before.
/// Errors: RESOURCE_EXHAUSTED when half of the free memory is not more than that cache;
/// FAILED_PRECONDITION when other threads run products all the while.
Result<HardwareRates> MeasureHostRates();

/// Measures what `device` can do at most for products of `type`: the host as MeasureHostRates; a
/// GPU's rate of reading 4 GiB and, on Hopper, its tensor cores' sustained rate on FP8 operands in
/// shared memory (of types of 16 bits half of that). Takes half a second. `measured` is false where
/// the arithmetic rate is the typical one: on other GPUs, and for FP32.
/// Errors: as MeasureHostRates; RESOURCE_EXHAUSTED when a GPU has no memory left.
Result<HardwareRates> MeasureRates(const DeviceInfo& device, DataType type);

/// Threads that CPU kernels use together with the caller: all cores the process may run on,
/// no more than the cgroup's CPU quota, unless CULET_THREADS (read once) or SetHostThreads says
/// otherwise.
int HostThreads();

/// Ok, or INVALID_ARGUMENT when CULET_THREADS is not a whole number from 1 to 1024 and
/// SetHostThreads was not called. HostThreads() ignores such a value; FindDevice("cpu") reports it.
Status CheckHostThreads();

/// Errors: INVALID_ARGUMENT unless 1 <= threads <= 1024. Not while a product is running.
Status SetHostThreads(int threads);

/// The SIMD levels that CPU kernels may use, best first, which is the one in use and in the device
/// class: those compiled in that this CPU has, none above CULET_SIMD (read once, when the library
/// is loaded). "avx3_dl", "avx3", "avx2", "scalar" on x86.
std::vector<std::string> HostSimdLevels();

/// Ok, or INVALID_ARGUMENT when CULET_SIMD names no level that is compiled in. HostSimdLevels()
/// ignores such a value; FindDevice("cpu") reports it.
Status CheckHostSimd();

}  // namespace culet
