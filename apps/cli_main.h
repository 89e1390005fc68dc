// The commands behind one function, which libculet.so exports for the program culet.
#pragma once

#include "culet/c_base.h"

/// Runs a command line; what `main` returns. For the program of the same build alone: it is no part
/// of the C interface, and may change with any version.
extern "C" CULET_API int culet_cli_main(int argc, char** argv);
