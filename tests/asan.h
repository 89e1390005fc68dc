// What tests must know of the address sanitizer.
#pragma once

namespace culet {

/// With it kernels take some ten times as long: repetition must do with less.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Its allocator's locks are not released in a child of fork: where another thread allocates
/// meanwhile, the child's first allocation may wait for ever.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kForkNeedsQuietThreads = true;
#else
inline constexpr bool kForkNeedsQuietThreads = false;
#endif

}  // namespace culet
