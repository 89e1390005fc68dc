// Calls of a session as bytes, which the sessions of other ranks make, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace culet {

enum class SessionCall : std::uint8_t {
  kAdd = 1,
  kRemove,
  kTruncate,
  kSetSampling,
  kStep,
  kPrefill,
  kDecode,
  kPrepare,
  kGate,  // whether there is one
  kHook,
};

/// What a leading session says while a call is under way: whether it goes on.
enum class Decision : std::uint8_t { kGo = 1, kEnd, kFailed };

class CallWriter {
 public:
  explicit CallWriter(SessionCall call) { Put(call); }
  template <class T>
  CallWriter& Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return Append(&value, sizeof value);
  }
  template <class T>
  CallWriter& PutAll(std::span<const T> values) {
    Put(static_cast<std::uint64_t>(values.size()));
    return Append(values.data(), values.size_bytes());
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  CallWriter& Append(const void* data, std::size_t bytes) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + bytes);
    if (bytes > 0) std::memcpy(bytes_.data() + at, data, bytes);
    return *this;
  }

  std::vector<std::byte> bytes_;
};

/// Zeros behind the end.
class CallReader {
 public:
  explicit CallReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <class T>
  T Get() {
    T value{};
    if (rest_.size() >= sizeof value) {
      std::memcpy(&value, rest_.data(), sizeof value);
      rest_ = rest_.subspan(sizeof value);
    }
    return value;
  }
  template <class T>
  std::vector<T> GetAll() {
    const auto count = static_cast<std::size_t>(Get<std::uint64_t>());
    if (count > rest_.size() / sizeof(T)) return {};
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), rest_.data(), count * sizeof(T));
    rest_ = rest_.subspan(count * sizeof(T));
    return values;
  }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace culet
