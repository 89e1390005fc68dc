/* What the headers of the C interface share: status, errors, the name of an engine. Programs include
 * culet/culet.h. C99 and C++. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define CULET_API
#else
#define CULET_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What went wrong, in one word. */
typedef enum culet_status {
  CULET_OK = 0,
  CULET_INVALID_ARGUMENT = 1,    /* an argument is wrong; the message names it, value and way out */
  CULET_UNSUPPORTED = 2,         /* a valid problem that no kernel takes */
  CULET_OUT_OF_RANGE = 3,        /* sizes whose product does not fit */
  CULET_RESOURCE_EXHAUSTED = 4,  /* memory, a workspace or a budget is too small */
  CULET_FAILED_PRECONDITION = 5, /* called in the wrong state, e.g. tuning inside a capture */
  CULET_NOT_FOUND = 6,           /* a file, device or kernel does not exist */
  CULET_DATA_LOSS = 7,           /* a file is not what it claims to be */
  CULET_IO = 8,                  /* the operating system refused to read or write */
  CULET_WRONG_RESULT = 9,        /* a kernel's output differs from the reference */
  CULET_INTERNAL = 10            /* a defect in culet */
} culet_status;

/* The text name, "INVALID_ARGUMENT" for example; never null. */
CULET_API const char* culet_status_name(culet_status status);

/* The sentence of this thread's last failed call: argument, value, way out. Valid until the
 * thread's next failed call; "" when none has failed. */
CULET_API const char* culet_last_error(void);

/* "0.1.0". */
CULET_API const char* culet_version(void);

/* The engine of one device: its kernels, its measured choices. */
typedef struct culet_engine culet_engine;

#ifdef __cplusplus
}
#endif
