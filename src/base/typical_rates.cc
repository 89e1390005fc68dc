// TypicalRates: what a machine of this class does when nobody has measured it. Choosing a kernel
// takes the ratio of the rates more than their size; a share of the roofline should be measured.
#include <algorithm>
#include <string_view>

#include "culet/device.h"

namespace culet {
namespace {

struct IsaRate {
  std::string_view prefix;   // of the device class behind "cpu/"
  double gflops_per_thread;  // FP32 multiply-adds
};

// AVX-512: measured 240 GFLOP/s a core on a Xeon of 2023 (2026-11-21, MeasureHostRates), about as
// much on an EPYC; less where two threads share a core. The others by their lanes and ports from
// there.
constexpr IsaRate kIsaRates[] = {
    {"avx3", 220}, {"avx2", 80}, {"sse4", 30}, {"ssse3", 30}, {"sve", 60}, {"neon", 40}, {"", 4},
};

// Reading with two threads: 34 to 38 GB/s measured on that Xeon, 34 to 46 on that EPYC; more
// threads get less each. Sockets with eight channels of DDR4 end near 160 of their 205 GB/s.
constexpr double kReadGbpsPerThread = 17;
constexpr double kReadGbpsSocket = 160;

// Fork and join of a pool that still spins.
constexpr double kForkUs = 2;

// One H200, 132 multiprocessors: read rate, dense rates at 8192^3 and an empty kernel in a graph.
constexpr double kH200Sms = 132;
constexpr double kH200ReadGbps = 4310;
constexpr double kH200Gflops8 = 1458e3;
constexpr double kH200Gflops16 = 788e3;
constexpr double kH200Gflops32 = 60e3;  // no tensor cores: 128 lanes an SM at 1.8 GHz
constexpr double kH200LaunchUs = 0.8;
constexpr double kH200MemoryGbps = 4800;  // of its interface
constexpr double kH200ClockMhz = 1980;
constexpr double kH200Watts = 700;

HardwareRates HostRates(const DeviceInfo& device) {
  std::string_view isa = device.device_class;
  if (isa.starts_with("cpu/")) isa.remove_prefix(4);
  const auto row = std::ranges::find_if(
      kIsaRates, [&](const IsaRate& rate) { return isa.starts_with(rate.prefix); });
  const double threads = std::max(1, device.units);
  HardwareRates rates;
  rates.read_gbps = std::min(threads * kReadGbpsPerThread, kReadGbpsSocket);
  rates.gflops = threads * row->gflops_per_thread;
  rates.launch_us = device.units > 1 ? kForkUs : 0;
  return rates;
}

HardwareRates GpuRates(const DeviceInfo& device, DataType type) {
  const auto over = [](double value, double h200) { return value > 0 ? value / h200 : 1.0; };
  const double clocks =
      std::max(1, device.units) / kH200Sms * over(device.clock_mhz, kH200ClockMhz);
  // The tensor cores of an H200 meet its power limit.
  const double power = device.power_watts > 0 ? device.power_watts / kH200Watts : clocks;
  HardwareRates rates;
  rates.read_gbps = kH200ReadGbps * over(device.memory_gbps, kH200MemoryGbps);
  rates.gflops = type == DataType::kFloat8_e4m3 ? std::min(clocks, power) * kH200Gflops8
                 : SizeOf(type) <= 2            ? std::min(clocks, power) * kH200Gflops16
                                                : clocks * kH200Gflops32;
  rates.launch_us = kH200LaunchUs;
  return rates;
}

}  // namespace

HardwareRates TypicalRates(const DeviceInfo& device, DataType type) {
  // All types are converted to FP32 on the CPU: one rate serves them.
  return device.arch == 0 ? HostRates(device) : GpuRates(device, type);
}

}  // namespace culet
