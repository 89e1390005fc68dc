// A shared library that is closed where its owner ends.
#pragma once

#include <dlfcn.h>

namespace culet {

struct CloseLibrary {
  void operator()(void* library) const noexcept { dlclose(library); }
};

}  // namespace culet
