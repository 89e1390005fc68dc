// Status and Result<T>: how culet reports failure. The library never prints, aborts or throws.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace culet {

/// What went wrong, in one word. Kernel::Launch returns these as positive ints (0 is success, a
/// negative value is a negated cudaError_t).
enum class StatusCode : int {
  kOk = 0,
  kInvalidArgument = 1,  ///< an argument is wrong; the message names it, its value and the way out
  kUnsupported = 2,      ///< a valid problem that no registered kernel takes
  kOutOfRange = 3,       ///< sizes whose product does not fit
  kResourceExhausted = 4,   ///< a workspace or a budget is too small
  kFailedPrecondition = 5,  ///< called in the wrong state, e.g. tuning inside a stream capture
  kNotFound = 6,            ///< a file, device or kernel id does not exist
  kDataLoss = 7,            ///< a file is not what it claims to be
  kIo = 8,                  ///< the operating system refused to read or write
  kWrongResult = 9,         ///< a kernel's output differs from the reference
  kInternal = 10,           ///< a defect in culet or in a user's kernel
};

/// The code's text name, "INVALID_ARGUMENT" for example.
const char* ToString(StatusCode code) noexcept;

/// Success, or a code with one sentence that names the argument, the value and the way out.
/// Copyable; success carries no allocation.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(StatusCode code, std::string message);

  bool ok() const noexcept { return code_ == StatusCode::kOk; }
  StatusCode code() const noexcept { return code_; }
  /// The sentence; empty on success.
  const std::string& message() const noexcept;
  /// "INVALID_ARGUMENT: m is 0; ..." or "OK".
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::shared_ptr<const std::string> message_;
};

inline Status OkStatus() noexcept { return {}; }

/// A value, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}  // NOLINT: implicit by design
  /// Requires: a failure; of success without a value it makes an INTERNAL error.
  Result(Status status)  // NOLINT: implicit by design
      : state_(status.ok() ? Status(StatusCode::kInternal, "success without a value")
                           : std::move(status)) {}

  bool ok() const noexcept { return std::holds_alternative<T>(state_); }
  explicit operator bool() const noexcept { return ok(); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }

  /// Requires: ok().
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

/// Leaves the enclosing function with the Status when `expr` is not ok.
#define CULET_RETURN_IF_ERROR(expr)                                             \
  do {                                                                          \
    if (auto culet_status_ = (expr); !culet_status_.ok()) return culet_status_; \
  } while (false)

}  // namespace culet
