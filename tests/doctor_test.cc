// What the doctor says of this machine, of a fake one's GPUs, and of caches and variables.
#include "culet/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cache_fixture.h"
#include "culet/gemm.h"
#include "culet/model.h"
#include "doctor/findings.h"
#include "doctor/nvml.h"

namespace culet {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Severity = Finding::Severity;

auto Says(Severity severity, const std::string& about, const std::string& what) {
  return AllOf(Field(&Finding::severity, severity), Field(&Finding::about, HasSubstr(about)),
               Field(&Finding::what, HasSubstr(what)));
}

class DoctorTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("CULET_SITE_CACHE", "off", 1); }
  void TearDown() override {
    for (const char* name : {"CULET_SITE_CACHE", "CULET_CUBLASLT", "CULET_TYPO"}) unsetenv(name);
  }
  Diagnosis Run(const std::string& cache = "off") {
    return Diagnose({.cache_path = cache, .nvml = "off"});
  }
  TemporaryFolder folder_;
};

TEST_F(DoctorTest, KnowsThisMachineAndTriesAProduct) {
  const Diagnosis diagnosis = Run();
  ASSERT_FALSE(diagnosis.devices.empty());
  EXPECT_EQ(diagnosis.devices[0].selector, "cpu");
  EXPECT_TRUE(diagnosis.devices[0].product.ok()) << diagnosis.devices[0].product.ToString();
  EXPECT_THAT(diagnosis.devices[0].kernel, testing::AnyOf(HasSubstr("cpu_"), HasSubstr("onednn")));
  EXPECT_THAT(diagnosis.libraries, SizeIs(3));
  EXPECT_THAT(diagnosis.ToString(),
              AllOf(HasSubstr("a small product is right"), HasSubstr("Libraries"),
                    HasSubstr("cuBLASLt"), HasSubstr("oneDNN"), HasSubstr("NCCL")));
}

TEST_F(DoctorTest, JsonHasAllOfIt) {
  const auto json = nlohmann::json::parse(JsonOf(Run()));
  for (const char* key : {"ok", "version", "with_cuda", "driver", "devices", "libraries", "caches",
                          "environment", "findings", "simd_levels"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["kind"], "culet doctor");
  EXPECT_EQ(json["devices"][0]["device"], "cpu");
  EXPECT_TRUE(json["devices"][0]["error"].is_null());
}

TEST_F(DoctorTest, ReadsGpusFromTheManagementLibrary) {
  const DriverState driver = AskNvml(FAKE_NVML);
  ASSERT_TRUE(driver.found);
  EXPECT_EQ(driver.version, "570.133.20");
  EXPECT_EQ(driver.cuda_version, "12.8");
  ASSERT_THAT(driver.gpus, SizeIs(2));
  const GpuState& gpu = driver.gpus[0];
  EXPECT_EQ(gpu.name, "NVIDIA H200");
  EXPECT_EQ(gpu.arch, 900);
  EXPECT_EQ(gpu.clock_mhz, 345);
  EXPECT_EQ(gpu.max_clock_mhz, 1980);
  EXPECT_EQ(gpu.memory_clock_mhz, 3201);
  EXPECT_EQ(gpu.power_watts, 76);
  EXPECT_EQ(gpu.power_limit_watts, 700);
  EXPECT_EQ(gpu.processes, 0);
  EXPECT_EQ(gpu.memory_bytes, 141ull << 30);
  EXPECT_THAT(gpu.throttled, ElementsAre());
  EXPECT_THAT(driver.gpus[1].throttled,
              ElementsAre("the applications' clock", "temperature (hardware)"));
  EXPECT_EQ(driver.gpus[1].processes, 3);
  EXPECT_EQ(driver.gpus[1].pci_bus_id, "");  // the library lacks that question
}

TEST_F(DoctorTest, SaysOfEachFaultOfAGpuWhatToDo) {
  Diagnosis diagnosis;
  diagnosis.with_cuda = true;
  diagnosis.driver = AskNvml(FAKE_NVML);
  DeviceState device;
  device.selector = "cuda:0";
  device.info.arch = 900;
  device.measured = 1;
  diagnosis.devices = {device};
  const std::vector<Finding> found = FindingsOf(diagnosis);
  EXPECT_THAT(found, Each(Field(&Finding::about, Not("gpu 0"))));
  EXPECT_THAT(found, Contains(Says(Severity::kSlow, "gpu 1", "compute capability 7.5")));
  EXPECT_THAT(found, Contains(Says(Severity::kSlow, "gpu 1", "clock is 1200 MHz")));
  EXPECT_THAT(found, Contains(Says(Severity::kSlow, "gpu 1", "350 W, the default 700 W")));
  EXPECT_THAT(found, Contains(Says(Severity::kSlow, "gpu 1", "temperature (hardware)")));
  EXPECT_THAT(found, Contains(Says(Severity::kSlow, "gpu 1", "3 processes compute on it (97 %")));
  EXPECT_THAT(found, Contains(Says(Severity::kNote, "gpu 1", "MIG")));
  EXPECT_THAT(found, Contains(Says(Severity::kNote, "gpu 1", "persistence")));
  for (const Finding& finding : found) EXPECT_NE(finding.remedy, "") << finding.what;
}

TEST_F(DoctorTest, AGpuThatThisBuildOrCudaDoesNotSeeIsNamed) {
  Diagnosis diagnosis = Run();
  diagnosis.driver = AskNvml(FAKE_NVML);
  diagnosis.with_cuda = false;
  EXPECT_THAT(FindingsOf(diagnosis), Contains(Says(Severity::kSlow, "build", "without CUDA")));
  diagnosis.with_cuda = true;
  diagnosis.cuda_note = "the CUDA driver supports CUDA 11.0, this build needs 13.0";
  diagnosis.findings = FindingsOf(diagnosis);
  if (diagnosis.devices.size() == 1) {
    EXPECT_THAT(diagnosis.findings,
                Contains(Says(Severity::kBroken, "driver", "this build needs 13.0")));
    EXPECT_FALSE(diagnosis.ok());
  }
  EXPECT_EQ(diagnosis.ToString().find('\x1b'), std::string::npos);
}

TEST_F(DoctorTest, ADriverThatDoesNotStartIsQuoted) {
  const DriverState driver = AskNvml(FAKE_NVML_WITHOUT_DRIVER);
  EXPECT_FALSE(driver.found);
  EXPECT_THAT(driver.note, HasSubstr("Driver Not Loaded"));
  EXPECT_THAT(AskNvml("/none/libnvidia-ml.so.1").note, HasSubstr("does not open"));
}

TEST_F(DoctorTest, AProductThatFailsIsBroken) {
  Diagnosis diagnosis = Run();
  EXPECT_TRUE(diagnosis.ok()) << diagnosis.ToString();
  diagnosis.devices[0].product = Status(StatusCode::kWrongResult, "D(0, 0) is 7");
  diagnosis.findings = FindingsOf(diagnosis);
  EXPECT_FALSE(diagnosis.ok());
  EXPECT_EQ(diagnosis.findings.front().severity, Severity::kBroken);  // worst first
  EXPECT_THAT(diagnosis.ToString(), HasSubstr("Something is broken"));
}

TEST_F(DoctorTest, CountsMeasuredChoicesAndSaysWhenThereAreNone) {
  const std::string path = folder_ / "cache.jsonl";
  EXPECT_THAT(Run(path).findings, Contains(Says(Severity::kSlow, "cache", "by prediction")));
  auto gemm = Gemm::Create();
  const GemmDesc desc = *MakeDesc(Format::kF32, 4, 64, 64, 0);
  LaunchSpec spec = *gemm->Choose(desc);
  spec.origin = Origin::kMeasured;
  ASSERT_TRUE(gemm->cache().Insert(desc, spec));
  ASSERT_TRUE(CacheFile(path).Save(gemm->cache()).ok());
  const Diagnosis diagnosis = Run(path);
  EXPECT_EQ(diagnosis.devices[0].measured, 1);
  EXPECT_THAT(diagnosis.findings, Not(Contains(Says(Severity::kSlow, "cache", "by prediction"))));
  EXPECT_THAT(diagnosis.ToString(), HasSubstr("cache.jsonl: 1 record"));
}

TEST_F(DoctorTest, NamesDamagedAndForeignCaches) {
  const std::string path = folder_ / "cache.jsonl";
  std::ofstream(path) << R"({"format":"culet-dispatch-cache","version":1})"
                      << "\nrubbish\n";
  EXPECT_THAT(Run(path).findings, Contains(Says(Severity::kNote, "user cache", "1 damaged")));
  std::ofstream(path) << "a diary\n";
  const Diagnosis diagnosis = Run(path);
  EXPECT_THAT(diagnosis.findings,
              Contains(Says(Severity::kBroken, "user cache", "not the header")));
  EXPECT_FALSE(diagnosis.ok());
}

TEST_F(DoctorTest, MakesNothing) {
  Run(folder_ / "new/cache.jsonl");
  EXPECT_NE(access((folder_ / "new").c_str(), F_OK), 0);
}

TEST_F(DoctorTest, NamesVariablesThatAreWrong) {
  setenv("CULET_TYPO", "1", 1);
  setenv("CULET_CUBLASLT", "/none/libcublasLt.so", 1);
  const Diagnosis diagnosis = Run();
  EXPECT_THAT(diagnosis.findings, Contains(Says(Severity::kNote, "environment", "CULET_TYPO")));
  EXPECT_THAT(diagnosis.findings,
              Contains(Says(Severity::kBroken, "environment", "/none/libcublasLt.so")));
}

}  // namespace
}  // namespace culet
