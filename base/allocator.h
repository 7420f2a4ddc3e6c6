#ifndef LEEWAY_BASE_ALLOCATOR_H_
#define LEEWAY_BASE_ALLOCATOR_H_

#include <string>

namespace leeway {

// Every program of leeway uses the same allocator, set up by itself: jemalloc with huge pages that keeps what was freed
// (allocator.cc, docs/decisions/0010-allocator.md). A page that is touched for the first time costs more than all else
// that is done to it, so the data plane's speed is that of the allocator.

// Call first in main(): makes sure that the set-up is linked in, and turns off what Debian's Abseil was built with for
// debugging, a graph of all locks that gRPC holds.
void PrepareAllocator();

// What is in use, for logs and `leeway doctor`: "jemalloc 5.3.0-...", or "glibc" where the build has no jemalloc
// (sanitizers).
std::string AllocatorName();

}  // namespace leeway

#endif  // LEEWAY_BASE_ALLOCATOR_H_
