#ifndef LEEWAY_BASE_THREAD_ANNOTATIONS_H_
#define LEEWAY_BASE_THREAD_ANNOTATIONS_H_

// Clang's thread-safety attributes under leeway names; nothing under other compilers. CI builds with -Wthread-safety
// -Werror.

#if defined(__clang__)
#define LEEWAY_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define LEEWAY_THREAD_ATTRIBUTE(x)
#endif

#define LEEWAY_CAPABILITY(x) LEEWAY_THREAD_ATTRIBUTE(capability(x))
#define LEEWAY_SCOPED_CAPABILITY LEEWAY_THREAD_ATTRIBUTE(scoped_lockable)
#define LEEWAY_GUARDED_BY(x) LEEWAY_THREAD_ATTRIBUTE(guarded_by(x))
#define LEEWAY_PT_GUARDED_BY(x) LEEWAY_THREAD_ATTRIBUTE(pt_guarded_by(x))
#define LEEWAY_ACQUIRED_AFTER(...) LEEWAY_THREAD_ATTRIBUTE(acquired_after(__VA_ARGS__))
#define LEEWAY_REQUIRES(...) LEEWAY_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define LEEWAY_ACQUIRE(...) LEEWAY_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define LEEWAY_TRY_ACQUIRE(...) LEEWAY_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define LEEWAY_RELEASE(...) LEEWAY_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define LEEWAY_EXCLUDES(...) LEEWAY_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define LEEWAY_NO_THREAD_SAFETY_ANALYSIS LEEWAY_THREAD_ATTRIBUTE(no_thread_safety_analysis)

#endif  // LEEWAY_BASE_THREAD_ANNOTATIONS_H_
