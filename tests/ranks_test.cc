// Ranks: exchanges of threads and processes, and what each is told when one of them is gone.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "argmax_rows.h"
#include "culet/rank_team.h"
#include "culet/ranks.h"
#include "rank_threads.h"

namespace culet {
namespace {

// What ends a child: 0 for success, else the error's text goes through a pipe.
struct Child {
  pid_t pid = -1;
  int pipe = -1;

  // The text, after the end; "killed" for one that was.
  std::string Wait() const {
    std::string text;
    char buffer[256];
    for (ssize_t got = 0; (got = read(pipe, buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(got));
    }
    close(pipe);
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? "killed" : text;
  }
};

Child Start(const std::function<Status()>& body) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    alarm(60);  // its default action ends the process
    const std::string text = body().ToString();
    _exit(write(ends[1], text.data(), text.size()) < 0);
  }
  close(ends[1]);
  return {pid, ends[0]};
}

RankOptions Options(int rank, int size, const std::string& meeting) {
  RankOptions options;
  options.rank = options.local_rank = rank;
  options.size = size;
  options.meeting = meeting;
  options.start_seconds = 20;
  options.wait_seconds = 20;
  return options;
}

TEST(Ranks, SumsAreAddedInTheOrderOfTheRanks) {
  for (const int size : {1, 2, 3, 4, 7}) {
    OnRanks(size, [&](Communicator& ranks) {
      std::mt19937 lengths(7);
      for (int round = 0; round < 20; ++round) {
        const std::size_t count = round == 0 && size < 4 ? 300'001 : lengths() % 3000;
        std::vector<std::vector<float>> of;
        for (int r = 0; r < size; ++r) {
          std::mt19937 random(static_cast<unsigned>(r * 100 + round));
          std::normal_distribution<float> normal;
          of.emplace_back(count);
          for (float& x : of.back()) x = normal(random);
        }
        std::vector<float> sums = of[0];
        for (int r = 1; r < size; ++r) {
          for (std::size_t i = 0; i < count; ++i) sums[i] += of[static_cast<std::size_t>(r)][i];
        }
        std::vector<float>& own = of[static_cast<std::size_t>(ranks.rank())];
        const Status status = ranks.AllReduce(own, own.data());
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(own, sums) << "size " << size << ", round " << round;
      }
    });
  }
}

TEST(Ranks, TheLargestOfAllRanksIsTheFirstOfEquals) {
  const ArgMaxRows rows = RowsForArgMax(64, 40);
  OnRanks(3, [&](Communicator& ranks) {
    const RankParts parts{ranks.rank(), {0, 7, 8, 40}};
    std::vector<std::int32_t> local, all(rows.rows.size());
    const std::vector<float> part = rows.PartOf(parts, local);
    const Status status = MakeHostExchange(ranks)->AllArgMax(
        ToDevicePtr(part.data()), ToDevicePtr(local.data()), ToDevicePtr(all.data()),
        static_cast<std::int64_t>(all.size()), parts, 0, {});
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(all, rows.wanted);
  });
}

TEST(Ranks, PartsOfAnySizeLieBehindEachOther) {
  OnRanks(4, [](Communicator& ranks) {
    const std::vector<std::size_t> bytes = {5, 0, 3'000'000, 17};
    const std::vector<char> own(bytes[static_cast<std::size_t>(ranks.rank())],
                                static_cast<char>('a' + ranks.rank()));
    std::string all(5 + 3'000'000 + 17, '-');
    ASSERT_TRUE(ranks.AllGather(own.data(), bytes, all.data()).ok());
    ASSERT_EQ(all, std::string(5, 'a') + std::string(3'000'000, 'c') + std::string(17, 'd'));
    std::string text = ranks.rank() == 2 ? "from 2" : "      ";
    ASSERT_TRUE(ranks.Broadcast(text.data(), text.size(), 2).ok());
    EXPECT_EQ(text, "from 2");
    ASSERT_TRUE(ranks.Barrier().ok());
  });
}

TEST(Ranks, MessagesOfTheFirstReachTheOthersInOrder) {
  OnRanks(3, [](Communicator& ranks) {
    for (int i = 0; i < 100; ++i) {
      const std::vector<std::byte> message(static_cast<std::size_t>(i * 50),
                                           static_cast<std::byte>(i));
      if (ranks.rank() == 0) {
        ASSERT_TRUE(ranks.Tell(message).ok());
        continue;
      }
      const auto heard = ranks.Hear();
      ASSERT_TRUE(heard.ok());
      ASSERT_EQ(*heard, message);
    }
    ASSERT_TRUE(ranks.Barrier().ok());
  });
}

TEST(Ranks, EachIsToldWhoDiffers) {
  OnRanks(3, [](Communicator& ranks) {
    EXPECT_TRUE(ranks.Agree({}, "model a\nwidth 4").ok());
    const Status differs =
        ranks.Agree({}, ranks.rank() == 2 ? "model a\nwidth 5" : "model a\nwidth 4");
    EXPECT_EQ(differs.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(differs.message().find("rank 2 has 'width 5' where rank 0 has 'width 4'"),
              std::string::npos)
        << differs.message();
    const Status failed = ranks.Agree(
        ranks.rank() == 1 ? Status(StatusCode::kResourceExhausted, "no memory") : Status(), "x");
    EXPECT_EQ(failed.message(), ranks.rank() == 1 ? "no memory" : "rank 1 failed: no memory");
    // An error of one is no end.
    EXPECT_TRUE(ranks.Agree({}, "x").ok());
  });
}

TEST(Ranks, OtherCallsAreRefusedOnAll) {
  OnRanks(3, [](Communicator& ranks) {
    float x = 1;
    const Status status = ranks.rank() == 1 ? ranks.Barrier() : ranks.AllReduce({&x, 1}, &x);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("rank 1 "), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("all must make the same calls"), std::string::npos);
    EXPECT_EQ(ranks.Barrier().message(), status.message());
  });
}

// Of two, so that no other one can be late on a loaded machine.
TEST(Ranks, OneThatDoesNotComeIsNamedWithinTheLimit) {
  std::atomic<bool> told = false;
  OnRanks(
      2,
      [&](Communicator& ranks) {
        if (ranks.rank() == 1) {
          while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          return;
        }
        const auto begin = std::chrono::steady_clock::now();
        const Status status = ranks.Barrier();
        told = true;
        EXPECT_NE(status.message().find("rank 1 did not come"), std::string::npos)
            << status.message();
        const auto took = std::chrono::steady_clock::now() - begin;
        EXPECT_GE(took, std::chrono::milliseconds(450));
        EXPECT_LT(took, std::chrono::seconds(30));
      },
      0.5);
}

TEST(Ranks, OneThatLeavesOrGivesUpIsNamed) {
  OnRanks(3, [](Communicator& ranks) {
    if (ranks.rank() == 1) return;
    EXPECT_NE(ranks.Barrier().message().find("rank 1 left"), std::string::npos);
  });
  std::atomic<int> told = 0;
  OnRanks(3, [&](Communicator& ranks) {
    if (ranks.rank() == 1) {
      ranks.Abort("out of memory");
      while (told < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    EXPECT_EQ(ranks.Barrier().message(), "rank 1 gave up: out of memory");
    ++told;
  });
}

TEST(Ranks, MeetingsThatCannotBeAreRefused) {
  const std::string meeting = NewMeeting();
  RankOptions options = Options(0, 2, meeting);
  options.start_seconds = 0.2;
  const auto alone = JoinRanks(options);
  ASSERT_FALSE(alone.ok());
  EXPECT_NE(alone.status().message().find("rank 1 did not come within 0.2 s"), std::string::npos)
      << alone.status().message();
  options.rank = 1;
  const auto late = JoinRanks(options);
  EXPECT_NE(late.status().message().find("rank 0 did not come"), std::string::npos);
  options.rank = 2;
  EXPECT_EQ(JoinRanks(options).status().code(), StatusCode::kInvalidArgument);

  std::thread first([&] {
    const auto joined = JoinRanks(Options(0, 3, meeting));
    EXPECT_EQ(joined.status().message(),
              "rank 1 of 2 meets rank 0 of 3; start all with one number");
  });
  const auto other = JoinRanks(Options(1, 2, meeting));
  first.join();
  EXPECT_EQ(other.status().message(), "rank 1 of 2 meets rank 0 of 3; start all with one number");
}

TEST(Ranks, ATeamWhoseProcessEndsBeforeItCameSaysSoAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const auto team = RankTeam::Start(3, {"false"});
  ASSERT_FALSE(team.ok());
  EXPECT_NE(team.status().message().find("rank 1 died before it met the others"), std::string::npos)
      << team.status().message();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

// A rank that dies anywhere is named by all others, at once, and leaves no process behind.
TEST(Ranks, OneThatIsKilledIsNamedByAllOthers) {
  std::mt19937 random(20261128);
  for (int round = 0; round < 50; ++round) {
    const int size = 2 + static_cast<int>(random() % 3);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
    const auto after = std::chrono::microseconds(random() % 20'000);
    const std::string meeting = NewMeeting();
    std::vector<Child> children;
    for (int rank = 0; rank < size; ++rank) {
      children.push_back(Start([&, rank]() -> Status {
        RankOptions options = Options(rank, size, meeting);
        options.start_seconds = 1;
        auto ranks = JoinRanks(options);
        if (!ranks) return ranks.status();
        std::vector<float> x(5000, 1.0f);
        for (;;) CULET_RETURN_IF_ERROR((*ranks)->AllReduce(x, x.data()));
      }));
    }
    std::this_thread::sleep_for(after);
    ASSERT_EQ(kill(children[static_cast<std::size_t>(victim)].pid, SIGKILL), 0);
    const auto begin = std::chrono::steady_clock::now();
    for (int rank = 0; rank < size; ++rank) {
      const std::string text = children[static_cast<std::size_t>(rank)].Wait();
      if (rank == victim) {
        EXPECT_EQ(text, "killed");
        continue;
      }
      // One that dies before all have met is missed there, where another may be late, too.
      const std::string name = "rank " + std::to_string(victim);
      EXPECT_TRUE(text.find(name) != std::string::npos ||
                  text.find("did not come within 1 s") != std::string::npos)
          << round << ": " << text;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(25)) << round;
  }
}

class LauncherTest : public testing::Test {
 protected:
  void SetUp() override { TearDown(); }
  void TearDown() override {
    for (const char* name : {"CULET_RANK",
                             "CULET_RANKS",
                             "CULET_MEETING",
                             "CULET_RANK_WAIT",
                             "RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "TORCHELASTIC_RUN_ID",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "PMIX_NAMESPACE",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "MPI_LOCALRANKID",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_LOCALID",
                             "SLURM_JOB_ID",
                             "SLURM_STEP_ID"}) {
      unsetenv(name);
    }
  }
  static void Set(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  }
};

TEST_F(LauncherTest, EachLaunchersVariablesAreRead) {
  auto found = RanksOfLauncher();
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->has_value());
  Set({{"SLURM_PROCID", "2"},
       {"SLURM_STEP_NUM_TASKS", "4"},
       {"SLURM_LOCALID", "2"},
       {"SLURM_JOB_ID", "77"},
       {"SLURM_STEP_ID", "0"}});
  found = RanksOfLauncher();
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->rank, 2);
  EXPECT_EQ((*found)->size, 4);
  EXPECT_EQ((*found)->meeting, "slurm:77:0");
  Set({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "1"}});
  found = RanksOfLauncher();
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->size, 3);
  EXPECT_FALSE((*found)->meeting.empty());
  Set({{"OMPI_COMM_WORLD_RANK", "0"},
       {"OMPI_COMM_WORLD_SIZE", "5"},
       {"PMIX_NAMESPACE", "prterun-7@1"}});
  found = RanksOfLauncher();
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->size, 5);
  EXPECT_EQ((*found)->meeting, "prterun-7@1");
  Set({{"RANK", "1"},
       {"WORLD_SIZE", "2"},
       {"LOCAL_RANK", "1"},
       {"MASTER_ADDR", "127.0.0.1"},
       {"MASTER_PORT", "29500"},
       {"CULET_RANK_WAIT", "7"}});
  found = RanksOfLauncher();
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->rank, 1);
  EXPECT_EQ((*found)->local_rank, 1);
  EXPECT_EQ((*found)->meeting, "127.0.0.1:29500::");
  EXPECT_EQ((*found)->wait_seconds, 7);
}

TEST_F(LauncherTest, WhatIsMissingIsNamed) {
  const auto error = [] { return RanksOfLauncher().status().message(); };
  Set({{"RANK", "1"}});
  EXPECT_NE(error().find("RANK is set and WORLD_SIZE is not"), std::string::npos) << error();
  Set({{"WORLD_SIZE", "2"}});
  EXPECT_NE(error().find("MASTER_PORT"), std::string::npos) << error();
  Set({{"MASTER_PORT", "1"}, {"WORLD_SIZE", "two"}});
  EXPECT_NE(error().find("WORLD_SIZE is 'two'"), std::string::npos) << error();
  Set({{"WORLD_SIZE", "1"}});
  EXPECT_NE(error().find("rank 1 of 1"), std::string::npos) << error();
  Set({{"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}});
  EXPECT_NE(error().find("several hosts"), std::string::npos) << error();
}

}  // namespace
}  // namespace culet
