// A GPU's class: boards of different speed have different ones, boards of one model the same.
#include "base/gpu_class.h"

#include <gtest/gtest.h>

namespace culet {
namespace {

DeviceInfo Gpu() {
  DeviceInfo device;
  device.arch = 900;
  device.units = 132;
  device.clock_mhz = 1980;
  device.cache_bytes = std::size_t{60} << 20;
  device.memory_bytes = 150'000'000'000;
  device.memory_gbps = 4800;
  return device;
}

std::string With(void (*change)(DeviceInfo&)) {
  DeviceInfo device = Gpu();
  change(device);
  return GpuClass(device);
}

TEST(GpuClass, SaysWhatDecidesSpeed) {
  EXPECT_EQ(GpuClass(Gpu()), "cuda/900/132sm/1980mhz/l2-60m/mem150g/4800gbps");
  EXPECT_NE(With([](DeviceInfo& d) { d.arch = 1000; }), GpuClass(Gpu()));
  EXPECT_NE(With([](DeviceInfo& d) { d.units = 114; }), GpuClass(Gpu()));
  EXPECT_NE(With([](DeviceInfo& d) { d.clock_mhz = 1755; }), GpuClass(Gpu()));
  EXPECT_NE(With([](DeviceInfo& d) { d.cache_bytes = std::size_t{50} << 20; }), GpuClass(Gpu()));
  EXPECT_NE(With([](DeviceInfo& d) { d.memory_bytes = 85'000'000'000; }), GpuClass(Gpu()));
  EXPECT_NE(With([](DeviceInfo& d) { d.memory_gbps = 3352; }), GpuClass(Gpu()));
}

TEST(GpuClass, SaysNothingElse) {
  EXPECT_EQ(With([](DeviceInfo& d) { d.name = "a brand"; }), GpuClass(Gpu()));
  EXPECT_EQ(With([](DeviceInfo& d) { d.ordinal = 7; }), GpuClass(Gpu()));
  EXPECT_EQ(With([](DeviceInfo& d) { d.clock_mhz = 1981; }), GpuClass(Gpu()));
  EXPECT_EQ(With([](DeviceInfo& d) { d.memory_bytes -= 500'000'000; }), GpuClass(Gpu()));
  EXPECT_EQ(With([](DeviceInfo& d) { d.memory_gbps = 4802; }), GpuClass(Gpu()));
}

}  // namespace
}  // namespace culet
