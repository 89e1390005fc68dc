#include "fake_cublaslt.h"

#include <cstring>

using namespace culet::lt;

namespace {

// Sizes that the manual gives; a wrong one is refused as the library does.
std::size_t SizeOfAttribute(int attribute) {
  switch (attribute) {
    case kFastAccum:
      return 1;
    case kBiasPointer:
    case kAScalePointer:
    case kBScalePointer:
      return 8;
    default:
      return 4;
  }
}

}  // namespace

extern "C" {

FakeState* culet_fake_cublaslt() {
  static FakeState state;
  return &state;
}

std::size_t cublasLtGetVersion() { return culet_fake_cublaslt()->version; }

int cublasLtCreate(Handle* handle) {
  FakeState& fake = *culet_fake_cublaslt();
  *handle = reinterpret_cast<Handle>(std::uintptr_t{1000} + static_cast<unsigned>(++fake.creates));
  return fake.create_status;
}

const char* cublasLtGetStatusString(int status) {
  return status == kNotSupported ? "the fake does not support it" : "the fake fails";
}

int cublasLtMatmul(Handle handle, Operation* operation, const void* alpha, const void* left,
                   Layout* left_layout, const void* right, Layout* right_layout, const void* beta,
                   const void* c, Layout* c_layout, void* d, Layout* d_layout,
                   const Algorithm* algorithm, void* workspace, std::size_t workspace_bytes,
                   cudaStream_t stream) {
  FakeState& fake = *culet_fake_cublaslt();
  fake.matmuls.push_back({handle, *operation, *left_layout, *right_layout, *c_layout, *d_layout,
                          left, right, c, d, *static_cast<const float*>(alpha),
                          *static_cast<const float*>(beta), *algorithm, workspace, workspace_bytes,
                          stream});
  return fake.matmul_status;
}

int cublasLtMatmulAlgoGetHeuristic(Handle, Operation* operation, Layout* left, Layout* right,
                                   Layout* c, Layout* d, Preference* preference, int requested,
                                   HeuristicResult* results, int* count) {
  FakeState& fake = *culet_fake_cublaslt();
  fake.searches.push_back({*operation, *left, *right, *c, *d, *preference, requested});
  *count = 0;
  if (fake.search_status != kSuccess) return fake.search_status;
  for (int i = 0; i < fake.algorithms && i < requested; ++i) {
    results[i].algorithm.data[0] = 100 + static_cast<unsigned>(i);
    results[i].status = i == fake.unusable ? kNotSupported : kSuccess;
    results[i].workspace_bytes = i == fake.greedy ? std::size_t{1} << 40 : 1024;
    ++*count;
  }
  return kSuccess;
}

#ifndef CULET_FAKE_WITHOUT_CHECK
int cublasLtMatmulAlgoCheck(Handle, Operation*, Layout*, Layout*, Layout*, Layout*,
                            const Algorithm*, HeuristicResult* result) {
  FakeState& fake = *culet_fake_cublaslt();
  ++fake.checks;
  result->status = kSuccess;
  result->workspace_bytes = 1024;
  return fake.check_status;
}
#endif

int cublasLtMatmulDescInit_internal(Operation* operation, std::size_t size, int compute_type,
                                    std::int32_t) {
  if (size != sizeof *operation) return kInvalidValue;
  *operation = {};
  operation->data[0] = static_cast<unsigned>(compute_type);
  return kSuccess;
}

int cublasLtMatmulDescSetAttribute(Operation* operation, int attribute, const void* value,
                                   std::size_t size) {
  if (size != SizeOfAttribute(attribute)) return kInvalidValue;
  if (attribute == culet_fake_cublaslt()->refused_attribute) return kNotSupported;
  std::uint64_t word = 0;
  std::memcpy(&word, value, size);
  operation->data[FakeWord(attribute)] = word;
  return kSuccess;
}

int cublasLtMatrixLayoutInit_internal(Layout* layout, std::size_t size, std::int32_t type,
                                      std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  if (size != sizeof *layout) return kInvalidValue;
  *layout = {{static_cast<unsigned>(type), rows, cols, static_cast<std::uint64_t>(ld)}};
  return kSuccess;
}

int cublasLtMatmulPreferenceInit_internal(Preference* preference, std::size_t size) {
  if (size != sizeof *preference) return kInvalidValue;
  *preference = {};
  return kSuccess;
}

int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* value,
                                         std::size_t size) {
  if (size != (attribute == kMaxWorkspaceBytes ? 8u : 4u)) return kInvalidValue;
  std::uint64_t word = 0;
  std::memcpy(&word, value, size);
  preference->data[attribute - 1] = word;
  return kSuccess;
}

}  // extern "C"
