// CPU quotas of control groups, on trees of files that look like /proc and /sys.
#include "base/cgroup.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace culet {
namespace {

namespace fs = std::filesystem;

class Cgroup : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/culet-cgroup-XXXXXX";
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << '\n';
  }
  void Mounted(const std::string& lines) {
    Write("/proc/self/mountinfo", "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n" + lines);
  }
  void V1(const std::string& folder, const std::string& quota) {
    Write(folder + "/cpu.cfs_quota_us", quota);
    Write(folder + "/cpu.cfs_period_us", "100000");
  }

  std::string root_;
};

constexpr const char* kV2 =
    "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
constexpr const char* kV1 =
    "31 22 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "33 22 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:11 - cgroup cgroup rw,cpu,cpuacct";

TEST_F(Cgroup, WithoutAnythingThereIsNoLimit) {
  EXPECT_EQ(CgroupCpus(root_), 0);
  Mounted(kV2);
  EXPECT_EQ(CgroupCpus(root_), 0);
  Write("/proc/self/cgroup", "0::/a/b");
  Write("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
  EXPECT_EQ(CgroupCpus(root_), 0);
}

TEST_F(Cgroup, TheUsualFolderCountsWithoutProc) {
  Write("/sys/fs/cgroup/cpu.max", "200000 100000");
  EXPECT_EQ(CgroupCpus(root_), 2);
}

TEST_F(Cgroup, AContainersOwnRoot) {
  Mounted(kV2);
  Write("/proc/self/cgroup", "0::/");
  Write("/sys/fs/cgroup/cpu.max", "350000 100000");
  EXPECT_EQ(CgroupCpus(root_), 4);
}

TEST_F(Cgroup, NestedGroupsOfVersion2TheLeastCounts) {
  Mounted(kV2);
  Write("/proc/self/cgroup", "0::/system.slice/some job.service/inner");
  Write("/sys/fs/cgroup/system.slice/some job.service/inner/cpu.max", "max 100000");
  EXPECT_EQ(CgroupCpus(root_), 0);
  Write("/sys/fs/cgroup/system.slice/some job.service/cpu.max", "300000 100000");
  EXPECT_EQ(CgroupCpus(root_), 3);
  Write("/sys/fs/cgroup/system.slice/cpu.max", "200000 100000");
  EXPECT_EQ(CgroupCpus(root_), 2);
  Write("/sys/fs/cgroup/system.slice/some job.service/inner/cpu.max", "50000 100000");
  EXPECT_EQ(CgroupCpus(root_), 1);
  // Of others.
  Write("/sys/fs/cgroup/user.slice/cpu.max", "10000 100000");
  Write("/proc/self/cgroup", "0::/system.slice/other.service");
  EXPECT_EQ(CgroupCpus(root_), 2);
}

TEST_F(Cgroup, QuotasOfVersion1) {
  Mounted(kV1);
  Write("/proc/self/cgroup", "12:cpuset:/elsewhere\n4:cpu,cpuacct:/jobs/7\n1:name=systemd:/x");
  V1("/sys/fs/cgroup/cpu,cpuacct/jobs/7", "-1");
  V1("/sys/fs/cgroup/cpuset/elsewhere", "100000");  // which says nothing there
  EXPECT_EQ(CgroupCpus(root_), 0);
  V1("/sys/fs/cgroup/cpu,cpuacct/jobs", "250000");
  EXPECT_EQ(CgroupCpus(root_), 3);
  V1("/sys/fs/cgroup/cpu,cpuacct/jobs/7", "200000");
  EXPECT_EQ(CgroupCpus(root_), 2);
}

// A container's files: what is mounted is its group, which /proc names by its path on the host.
TEST_F(Cgroup, AMountOfTheOwnGroup) {
  Mounted("33 22 0:29 /docker/5f /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct");
  Write("/proc/self/cgroup", "4:cpu,cpuacct:/docker/5f");
  V1("/sys/fs/cgroup/cpu", "200000");
  EXPECT_EQ(CgroupCpus(root_), 2);
  Write("/proc/self/cgroup", "4:cpu,cpuacct:/docker/5f/in");
  V1("/sys/fs/cgroup/cpu/in", "100000");
  EXPECT_EQ(CgroupCpus(root_), 1);
  // Another's, whose name begins alike.
  Write("/proc/self/cgroup", "4:cpu,cpuacct:/docker/5fe");
  EXPECT_EQ(CgroupCpus(root_), 0);
}

TEST_F(Cgroup, BothVersionsAndOddPlaces) {
  Mounted(
      "33 22 0:29 / /groups/with\\040blank rw - cgroup cgroup rw,cpu\n"
      "34 22 0:30 /../.. /up rw - cgroup2 none rw");
  Write("/proc/self/cgroup", "4:cpu:/a\n0::/b");
  V1("/groups/with blank/a", "300000");
  EXPECT_EQ(CgroupCpus(root_), 3);
  Write("/up/cpu.max", "200000 100000");
  EXPECT_EQ(CgroupCpus(root_), 2);
}

}  // namespace
}  // namespace culet
