// A cuBLASLt that computes nothing: it records its arguments and returns configured answers. Built
// as shared libraries that the loader opens as it opens the real one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cublaslt/lt_abi.h"

namespace culet::lt {

struct FakeMatmul {
  Handle handle;
  Operation operation;
  Layout left, right, c, d;
  const void *left_data, *right_data, *c_data;
  void* d_data;
  float alpha, beta;
  Algorithm algorithm;
  void* workspace;
  std::size_t workspace_bytes;
  cudaStream_t stream;
};

struct FakeSearch {
  Operation operation;
  Layout left, right, c, d;
  Preference preference;
  int requested;
};

/// What the library is told, and what it has seen. Descriptors hold each attribute in the word of
/// FakeWord; a layout holds type, rows, columns and ld.
struct FakeState {
  std::size_t version = 130100;
  int create_status = 0;
  int search_status = 0;
  int check_status = 0;
  int matmul_status = 0;
  int algorithms = 3;          ///< found by a search; their first word counts from 100
  int unusable = -1;           ///< the one of them with a bad state
  int greedy = -1;             ///< the one of them that wants more than any workspace
  int refused_attribute = -1;  ///< of the operation
  int creates = 0;
  std::vector<FakeSearch> searches;
  std::vector<FakeMatmul> matmuls;
  int checks = 0;
};

/// The word of a descriptor that holds an attribute.
constexpr std::size_t FakeWord(int attribute) {
  return attribute == kBScaleMode ? 1 : static_cast<std::size_t>(attribute);
}

}  // namespace culet::lt

extern "C" culet::lt::FakeState* culet_fake_cublaslt();
