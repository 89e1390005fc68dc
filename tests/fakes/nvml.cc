// A libnvidia-ml.so.1 of two GPUs: one that is as it should be, and one of which all is wrong.
#include <cstring>

namespace {

struct Gpu {
  int number;
};
Gpu gpus[] = {{0}, {1}};
bool Wrong(void* gpu) { return static_cast<Gpu*>(gpu)->number == 1; }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int nvmlInit_v2() {
#ifdef FAKE_NVML_WITHOUT_DRIVER
  return 9;
#else
  return 0;
#endif
}
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int) { return "Driver Not Loaded"; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::strncpy(text, "570.133.20", size);
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) { return *version = 12080, 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 2, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** gpu) { return *gpu = &gpus[index], 0; }
int nvmlDeviceGetName(void* gpu, char* text, unsigned size) {
  std::strncpy(text, Wrong(gpu) ? "NVIDIA Old\x1b[31m" : "NVIDIA H200", size);
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void* gpu, int* major, int* minor) {
  *major = Wrong(gpu) ? 7 : 9;
  *minor = Wrong(gpu) ? 5 : 0;
  return 0;
}
int nvmlDeviceGetClockInfo(void*, unsigned kind, unsigned* mhz) {
  return *mhz = kind == 1 ? 345 : 3201, 0;
}
int nvmlDeviceGetMaxClockInfo(void*, unsigned, unsigned* mhz) { return *mhz = 1980, 0; }
int nvmlDeviceGetApplicationsClock(void* gpu, unsigned, unsigned* mhz) {
  return *mhz = Wrong(gpu) ? 1200 : 1980, 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) { return *milliwatts = 76'000, 0; }
int nvmlDeviceGetEnforcedPowerLimit(void* gpu, unsigned* milliwatts) {
  return *milliwatts = Wrong(gpu) ? 350'000 : 700'000, 0;
}
int nvmlDeviceGetPowerManagementDefaultLimit(void*, unsigned* milliwatts) {
  return *milliwatts = 700'000, 0;
}
int nvmlDeviceGetTemperature(void*, unsigned, unsigned* degrees) { return *degrees = 31, 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void* gpu, unsigned long long* bits) {
  return *bits = Wrong(gpu) ? 0x40 | 0x02 : 0x01, 0;
}
int nvmlDeviceGetPersistenceMode(void* gpu, int* on) { return *on = Wrong(gpu) ? 0 : 1, 0; }
int nvmlDeviceGetMigMode(void* gpu, unsigned* now, unsigned* pending) {
  return *now = *pending = Wrong(gpu) ? 1 : 0, 0;
}
int nvmlDeviceGetUtilizationRates(void* gpu, unsigned* rates) {
  return rates[0] = rates[1] = Wrong(gpu) ? 97 : 0, 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* gpu, unsigned* count, void*) {
  if (!Wrong(gpu)) return *count = 0, 0;
  *count = 3;
  return 7;  // there is no room for them
}
int nvmlDeviceGetMemoryInfo(void* gpu, unsigned long long* memory) {
  memory[0] = 141ull << 30;
  memory[2] = Wrong(gpu) ? 100ull << 30 : 0;
  memory[1] = memory[0] - memory[2];
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
