// What stands between C callers and C++: Status becomes a code and this thread's last error.
#pragma once

#include <exception>
#include <new>

#include "culet/culet.h"
#include "culet/status.h"

namespace culet::capi {

inline constexpr char kNoMemory[] = "the host has no memory left";

/// Keeps the message for culet_last_error and returns the code.
culet_status Report(const Status& status) noexcept;
culet_status Report(StatusCode code, const char* message) noexcept;

/// Runs `body`, which returns a Status; no exception leaves.
template <class Body>
culet_status Guarded(Body&& body) noexcept {
  try {
    const Status status = body();
    return status.ok() ? CULET_OK : Report(status);
  } catch (const std::bad_alloc&) {
    return Report(StatusCode::kResourceExhausted, kNoMemory);
  } catch (const std::exception& error) {
    return Report(StatusCode::kInternal, error.what());
  } catch (...) {
    return Report(StatusCode::kInternal, "an unknown exception; please report it");
  }
}

/// INVALID_ARGUMENT: "<name> is null; ...".
Status Null(const char* name);

}  // namespace culet::capi
