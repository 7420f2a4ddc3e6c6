# leeway::torch: libtorch out of the unpacked PyPI wheel (LEEWAY_TORCH_ROOT, made by ./run). Imported by hand, since the wheel's
# own CMake package demands nvcc. Only ATen, c10, caffe2 and torch headers are exposed: torch/include also carries an old
# protobuf that would shadow Debian's.
if(NOT LEEWAY_TORCH_ROOT)
  return()
endif()
set(torch_lib ${LEEWAY_TORCH_ROOT}/torch/lib)
set(torch_overlay ${CMAKE_BINARY_DIR}/torch_overlay)
file(MAKE_DIRECTORY ${torch_overlay})
foreach(part ATen c10 caffe2 torch)
  file(CREATE_LINK ${LEEWAY_TORCH_ROOT}/torch/include/${part} ${torch_overlay}/${part} SYMBOLIC)
endforeach()

add_library(leeway_c10 SHARED IMPORTED)
set_target_properties(leeway_c10 PROPERTIES IMPORTED_LOCATION ${torch_lib}/libc10.so IMPORTED_SONAME libc10.so)
add_library(leeway_torch SHARED IMPORTED)
set_target_properties(leeway_torch PROPERTIES
  IMPORTED_LOCATION ${torch_lib}/libtorch_cpu.so
  IMPORTED_SONAME libtorch_cpu.so
  INTERFACE_LINK_LIBRARIES leeway_c10)
target_include_directories(leeway_torch SYSTEM INTERFACE ${torch_overlay}
  ${LEEWAY_TORCH_ROOT}/torch/include/torch/csrc/api/include)
target_compile_definitions(leeway_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
target_link_options(leeway_torch INTERFACE
  -Wl,-rpath,${torch_lib} -Wl,-rpath-link,${torch_lib} -Wl,-rpath-link,${LEEWAY_TORCH_ROOT}/nvidia/cu13/lib
  -Wl,--allow-shlib-undefined)
add_library(leeway::torch ALIAS leeway_torch)
