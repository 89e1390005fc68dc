// What stands between C callers and C++: Status becomes a code and this thread's last error.
#pragma once

#include <exception>
#include <new>

#include "culet/culet.h"
#include "culet/status.h"

namespace culet::capi {

/// Keeps the message for culet_last_error and returns the code.
culet_status Report(const Status& status) noexcept;

/// Runs `body`, which returns a Status; no exception leaves.
template <class Body>
culet_status Guarded(Body&& body) noexcept {
  try {
    const Status status = body();
    return status.ok() ? CULET_OK : Report(status);
  } catch (const std::bad_alloc&) {
    return Report(Status(StatusCode::kResourceExhausted, "the host has no memory left"));
  } catch (const std::exception& error) {
    return Report(Status(StatusCode::kInternal, error.what()));
  } catch (...) {
    return Report(Status(StatusCode::kInternal, "an unknown exception; please report it"));
  }
}

/// INVALID_ARGUMENT: "<name> is null; ...".
Status Null(const char* name);

}  // namespace culet::capi
