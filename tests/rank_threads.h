// Ranks of a test as threads of its process, which exchange as processes do.
#pragma once

#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "culet/ranks.h"

namespace culet {

/// A name that no other test uses.
inline std::string NewMeeting() {
  static std::atomic<int> count = 0;
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}

/// Calls `body` on each of `size` ranks, side by side.
inline void OnRanks(int size, const std::function<void(Communicator&)>& body,
                    double wait_seconds = 60) {
  const std::string meeting = NewMeeting();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      RankOptions options;
      options.rank = options.local_rank = rank;
      options.size = size;
      options.meeting = meeting;
      options.start_seconds = 30;
      options.wait_seconds = wait_seconds;
      auto ranks = JoinRanks(options);
      ASSERT_TRUE(ranks.ok()) << ranks.status().ToString();
      body(**ranks);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace culet
