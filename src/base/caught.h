// Where functions of the user are called: the library does not throw, so what they throw ends here.
#pragma once

#include <exception>
#include <string>

#include "culet/status.h"

namespace culet {

/// Calls `body`; `failed(words)` makes the result of one that throws.
template <class Body, class Failed>
auto Caught(Body&& body, Failed&& failed) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& error) {
    return failed(error.what());
  } catch (...) {
    return failed("something that is no std::exception");
  }
}

/// What `body` returns, a Status or a Result; INTERNAL "<what> threw: <words>" when it throws.
template <class Body>
auto CaughtAs(const char* what, Body&& body) -> decltype(body()) {
  return Caught(body, [&](const char* words) {
    return decltype(body())(Status(StatusCode::kInternal, std::string(what) + " threw: " + words));
  });
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
