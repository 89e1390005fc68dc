// What the cache's tests share: a kernel that is never launched, problems, a folder of its own,
// another user.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "culet/dispatch_cache.h"

namespace culet {

inline constexpr const char* kTestDevice = "cpu/test/4t/llc32m";

/// Takes m <= max_m, swizzles up to 3 and splits up to 8.
class IdleKernel final : public ArgsKernel {
 public:
  explicit IdleKernel(std::string id, int max_m = 1 << 20)
      : ArgsKernel(KernelDesc{}, KernelInfo{.name = std::move(id)}), max_m_(max_m) {}
  Feasibility why(const GemmDesc& desc) const noexcept override {
    return desc.m <= max_m_ ? Kernel::why(desc) : Feasibility::Refuse("m is too large");
  }
  int GetMaxSwizzle(const int4&) const override { return 3; }
  int GetMaxSplits(const int4&, int, std::size_t, std::size_t) const override { return 8; }
  int Run(const GemmArgs&, int, int, Workspace&, cudaStream_t) override { return 0; }

 private:
  int max_m_;
};

inline GemmDesc Problem(int m, int n = 4096, int k = 2048) {
  GemmDesc desc;
  desc.a.type = desc.b.type = desc.d.type = DataType::kBfloat16;
  desc.m = m;
  desc.n = n;
  desc.k = k;
  return desc;
}

inline LaunchSpec Measured(Kernel& kernel, double time_us, std::int64_t when = 1'700'000'000) {
  LaunchSpec spec;
  spec.kernel = &kernel;
  spec.time_us = time_us;
  spec.origin = Origin::kMeasured;
  spec.when = when;
  return spec;
}

inline bool SameSpec(const LaunchSpec& a, const LaunchSpec& b) {
  return a.kernel == b.kernel && a.swizzle == b.swizzle && a.splits == b.splits &&
         a.time_us == b.time_us && a.spread_us == b.spread_us && a.baseline_us == b.baseline_us &&
         a.origin == b.origin && a.when == b.when && a.serial == b.serial && a.variant == b.variant;
}

/// A folder that lives as long as the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "culet-test-XXXXXX").string();
    path_ = mkdtemp(name.data()) != nullptr ? name : "";
    EXPECT_FALSE(path_.empty());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

inline std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

inline constexpr int kCannot = 99;

/// Runs `body` as a user whom permissions hold back; its return value, kCannot where there is no
/// such user, or -1 when it did not end by itself.
inline int AsNobody(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(kCannot);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace culet
