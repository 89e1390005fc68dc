// What CMake tells test_main.cc of its program.
#pragma once

namespace culet {

/// "entry file file ...", and a null behind the last.
extern const char* const kTestEntries[];

}  // namespace culet
