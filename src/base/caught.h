// Where functions of the user are called: the library does not throw, so what they throw ends here.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "culet/status.h"

namespace culet {

/// What a function threw. `words` lives as long as the exception.
struct Thrown {
  StatusCode code;  ///< RESOURCE_EXHAUSTED for std::bad_alloc, else INTERNAL
  const char* words;

  /// "<what> threw: <words>", or that it had no memory.
  Status StatusOf(const std::string& what) const {
    const bool no_memory = code == StatusCode::kResourceExhausted;
    return Status(code, what + (no_memory ? ": the host has no memory left (" : " threw: ") +
                            words + (no_memory ? ")" : ""));
  }
};

/// Calls `body`; `failed(Thrown)` makes the result of one that throws.
template <class Body, class Failed>
auto Caught(Body&& body, Failed&& failed) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc& error) {
    return failed(Thrown{StatusCode::kResourceExhausted, error.what()});
  } catch (const std::exception& error) {
    return failed(Thrown{StatusCode::kInternal, error.what()});
  } catch (...) {
    return failed(Thrown{StatusCode::kInternal, "something that is no std::exception"});
  }
}

/// What `body` returns, a Status or a Result; Thrown::StatusOf(what) when it throws.
template <class Body>
auto CaughtAs(const char* what, Body&& body) -> decltype(body()) {
  return Caught(body,
                [&](const Thrown& thrown) { return decltype(body())(thrown.StatusOf(what)); });
}

/// What a question whether to go on answers; one that throws is a no.
template <class Question>
bool CaughtNo(Question&& question) noexcept {
  try {
    return question();
  } catch (...) {
    return false;
  }
}

}  // namespace culet
