// With the real oneDNN where it is installed: no threads beside those of culet's pool, and children
// after fork run the plans of their parent and make their own.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <vector>

#include "culet/gemm.h"
#include "culet/model.h"
#include "kernels/onednn/library.h"

namespace culet {
namespace {

int ThreadsOfThisProcess() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

class OnednnFork : public testing::Test {
 protected:
  static constexpr int kM = 33, kN = 700, kK = 64;

  OnednnFork() : gemm_(*Gemm::Create()) {
    EXPECT_TRUE(SetHostThreads(3).ok());
    args_.A = a_.data();
    args_.Adesc = RowMajor(DataType::kFloat32, kM, kK);
    args_.B = b_.data();
    args_.Bdesc = ColMajor(DataType::kFloat32, kK, kN);
    args_.D = d_.data();
    args_.Ddesc = RowMajor(DataType::kFloat32, kM, kN);
  }
  void TearDown() override { EXPECT_TRUE(SetHostThreads(threads_).ok()); }

  Result<GemmPlan> Plan() {
    return gemm_.Plan(args_, {.kernel = gemm_.registry().Find("onednn/f32")});
  }

  // Whether the plan's product is right: A and B are all ones.
  bool Runs(const GemmPlan& plan) {
    std::fill(d_.begin(), d_.end(), -1.0f);
    const WorkspaceSize size = plan.workspace_size();
    std::vector<std::byte> memory(size.total() + 256);
    void* aligned = memory.data();
    std::size_t space = memory.size();
    auto workspace =
        InitWorkspace(size, std::align(256, size.total(), aligned, space), size.total());
    if (!workspace.ok() || !plan.Launch({.A = a_.data(), .D = d_.data()}, *workspace).ok()) {
      return false;
    }
    return std::all_of(d_.begin(), d_.end(), [](float value) { return value == kK; });
  }

  const int threads_ = HostThreads();
  Gemm gemm_;
  std::vector<float> a_ = std::vector<float>(std::size_t{kM} * kK, 1.0f);
  std::vector<float> b_ = std::vector<float>(std::size_t{kK} * kN, 1.0f);
  std::vector<float> d_ = std::vector<float>(std::size_t{kM} * kN);
  GemmArgs args_;
};

TEST_F(OnednnFork, ChildrenComputeAsTheirParentDid) {
  if (!onednn::TheLibrary().ok()) GTEST_SKIP() << onednn::TheLibrary().reason;
  const auto plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  ASSERT_TRUE(Runs(*plan));
  EXPECT_LE(ThreadsOfThisProcess(), 3) << "oneDNN started threads of its own";
  for (int i = 0; i < 5; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // its default action ends the process
      if (!Runs(*plan)) _exit(1);
      const auto own = Plan();
      _exit(own.ok() && Runs(*own) && ThreadsOfThisProcess() <= 3 ? 0 : 2);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "the child hung";
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  EXPECT_TRUE(Runs(*plan));
}

}  // namespace
}  // namespace culet
