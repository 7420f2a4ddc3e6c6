# Compiler and linker settings of every target. -ffp-contract=off: sums are fused only where the code says so (bits must not
# depend on the compiler's mood); -g1 keeps stack traces without the size of full debug information.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
                                  CCACHE_SLOPPINESS=include_file_mtime,include_file_ctime ${CCACHE_PROGRAM})
endif()

add_compile_options(-Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-field-initializers -ffp-contract=off -g1
                    -fno-omit-frame-pointer)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-Wthread-safety)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
if(LEEWAY_FAILPOINTS)
  add_compile_definitions(LEEWAY_FAILPOINTS=1)
endif()

find_program(LLD_PROGRAM ld.lld)
if(LLD_PROGRAM)
  add_link_options(-fuse-ld=lld)
endif()

if(LEEWAY_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -O1)
  add_link_options(-fsanitize=address,undefined)
elseif(LEEWAY_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -O1)
  add_link_options(-fsanitize=thread)
elseif(LEEWAY_SANITIZE STREQUAL "fuzz")
  # clang only; tests/fuzz links the fuzzer itself.
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -O1)
  add_link_options(-fsanitize=address,undefined)
elseif(LEEWAY_SANITIZE)
  message(FATAL_ERROR "LEEWAY_SANITIZE=${LEEWAY_SANITIZE}: expected empty, address, thread or fuzz")
endif()

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(GRPCPP REQUIRED IMPORTED_TARGET grpc++)
find_package(GTest REQUIRED)
find_package(benchmark QUIET)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(ROCKSDB REQUIRED IMPORTED_TARGET rocksdb)

# The allocator of every program (base/allocator.h). Sanitizers bring their own.
if(NOT LEEWAY_SANITIZE)
  pkg_check_modules(JEMALLOC REQUIRED IMPORTED_TARGET jemalloc)
endif()
