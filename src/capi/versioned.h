// Structs of the C interface: of any age on their way in and out, and as the C++ types.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "culet/culet.h"
#include "culet/kernel.h"
#include "culet/problem.h"
#include "culet/status.h"

namespace culet::capi {

/// No struct of any version is as large: what says so was not set, and must not be read so far.
inline constexpr std::size_t kMostStructBytes = 65536;

/// "<name>.struct_size is 0; ...", INVALID_ARGUMENT.
Status BadStructSize(const char* name, std::size_t size, std::size_t known);

/// The caller's struct as this library's: what an older caller lacks is 0.
/// Errors: INVALID_ARGUMENT for a null pointer, a size that no struct has, or a newer struct whose
/// fields unknown here are set.
template <class T>
Status Read(const char* name, const T* given, T& out) {
  out = T{};
  if (given == nullptr) {
    return Status(StatusCode::kInvalidArgument, std::string(name) + " is null; give a struct");
  }
  const std::size_t size = given->struct_size;
  if (size <= sizeof(std::size_t) || size > kMostStructBytes) {
    return BadStructSize(name, size, sizeof(T));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) return BadStructSize(name, size, sizeof(T));
  }
  std::memcpy(&out, bytes, std::min(size, sizeof(T)));
  return {};
}

/// Writes what the caller's struct has room for; its struct_size stays.
/// Errors: INVALID_ARGUMENT for a null pointer or a size too small to be one.
template <class T>
Status Write(const char* name, T value, T* given) {
  if (given == nullptr) {
    return Status(StatusCode::kInvalidArgument, std::string(name) + " is null; give a struct");
  }
  const std::size_t size = given->struct_size;
  if (size <= sizeof(std::size_t)) return BadStructSize(name, size, sizeof(T));
  value.struct_size = size;
  std::memcpy(given, &value, std::min(size, sizeof(T)));
  return {};
}

/// Ok when a `reserved` field is. Where a newer header has a field, this library would not do what
/// the caller asks for. Errors: INVALID_ARGUMENT.
Status CheckReserved(const std::string& name, bool zero);

/// "<name> is 257; use the constants of culet.h", INVALID_ARGUMENT.
Status NotAConstant(const char* name, std::int32_t value);

/// A constant of culet.h as an enumerator, which is a byte: 257 must not become 1.
template <class Enum>
Status ToEnum(const char* name, std::int32_t value, Enum& out) {
  if (value < 0 || value > std::numeric_limits<std::uint8_t>::max()) {
    return NotAConstant(name, value);
  }
  out = static_cast<Enum>(value);
  return {};
}

/// A layout that a caller gave as `name`. Errors: as ToGemmArgs.
Status ToLayout(const std::string& name, const culet_matrix& matrix, MatrixLayout& layout);
culet_matrix ToMatrix(const MatrixLayout& layout);

/// The problem as the engine takes it. Values that are no enumerators pass through: Describe names
/// them. Errors: INVALID_ARGUMENT for one that would not survive the narrowing.
Status ToGemmArgs(const culet_problem& problem, GemmArgs& args);

/// The problem of a call, checked as far as C can get it wrong. Errors: as Read and ToGemmArgs.
Status ReadProblem(const culet_problem* given, GemmArgs& args);

culet_choice ToChoice(const LaunchSpec& spec);

/// Copies text into a fixed field, cut to fit.
template <std::size_t N>
void CopyText(const std::string& text, char (&field)[N]) {
  const std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(field, text.data(), length);
  field[length] = '\0';
}

}  // namespace culet::capi
