// What tests must know of the address sanitizer.
#pragma once

namespace culet {

/// Its allocator's locks are not released in a child of fork: where another thread allocates
/// meanwhile, the child's first allocation may wait for ever.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kForkNeedsQuietThreads = true;
#else
inline constexpr bool kForkNeedsQuietThreads = false;
#endif

}  // namespace culet
