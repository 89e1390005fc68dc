// What the files of async.h keep of each thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "async.h"
#include "running_threads.h"

namespace culet::host_cuda {

struct Product {
  Operands type;
  int columns;
  bool adds, registers;
  float* d;
  std::uint64_t a, b;
  std::uint32_t fragment[4];  // of A, where it lies in registers
};

/// The values of an accumulator that products still change.
struct Accumulator {
  float* d;
  int products;
  std::vector<float> values;
};

struct AsyncThread {
  std::vector<std::shared_ptr<Transfer>> arrivals;         // copies that arrive at a barrier
  std::vector<std::vector<std::function<void()>>> stores;  // groups that have not happened
  std::vector<std::function<void()>> open_stores;
  std::vector<std::vector<Product>> groups;  // the same of products
  std::vector<Product> open;
  std::vector<Accumulator> accumulators;
  std::uint64_t issued = 0;  // a hash of all products that were made
  bool fenced = false;
  bool arrived = false;  // at the cluster's barrier of this generation
  unsigned generation = 0;
};
AsyncThread& RunningAsync();

void CompleteBytes(std::uint64_t* barrier, std::uint32_t bytes);

}  // namespace culet::host_cuda
