# SPDX-License-Identifier: Apache-2.0
# Finds the headers and libraries of the torch wheel that Python imports; needs neither torch's CMake files nor CUDA.
#
# Defines TorchWheel_FOUND, TorchWheel_VERSION (as torch.__version__) and the target TorchWheel::torch.
if(NOT Python_EXECUTABLE)
  message(FATAL_ERROR "FindTorchWheel needs Python_EXECUTABLE. Call find_package(Python) first.")
endif()

execute_process(
  COMMAND ${Python_EXECUTABLE} -c
          "import os, torch; print(os.path.dirname(torch.__file__), torch.__version__, \
int(torch._C._GLIBCXX_USE_CXX11_ABI), sep='\\n')"
  OUTPUT_VARIABLE torch_facts ERROR_VARIABLE torch_error RESULT_VARIABLE torch_result
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(torch_result EQUAL 0)
  string(REPLACE "\n" ";" torch_facts "${torch_facts}")
  list(GET torch_facts 0 torch_dir)
  list(GET torch_facts 1 TorchWheel_VERSION)
  list(GET torch_facts 2 torch_cxx11_abi)
  set(torch_libraries)
  foreach(lib c10 torch_cpu torch torch_python)
    find_library(TorchWheel_${lib} ${lib} PATHS ${torch_dir}/lib NO_DEFAULT_PATH NO_CACHE)
    list(APPEND torch_libraries ${TorchWheel_${lib}})
  endforeach()
else()
  set(torch_why "${Python_EXECUTABLE} could not import torch. Install torch there, or pass \
-DPython_EXECUTABLE=<a Python that has torch>.\n${torch_error}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  TorchWheel
  REQUIRED_VARS torch_dir TorchWheel_c10 TorchWheel_torch_cpu TorchWheel_torch TorchWheel_torch_python
  VERSION_VAR TorchWheel_VERSION
  REASON_FAILURE_MESSAGE "${torch_why}")

if(TorchWheel_FOUND AND NOT TARGET TorchWheel::torch)
  add_library(TorchWheel::torch INTERFACE IMPORTED)
  # SYSTEM: warnings in torch's headers (and in the pybind11 it bundles) are not ours.
  target_include_directories(
    TorchWheel::torch SYSTEM INTERFACE ${torch_dir}/include ${torch_dir}/include/torch/csrc/api/include)
  target_compile_definitions(TorchWheel::torch INTERFACE _GLIBCXX_USE_CXX11_ABI=${torch_cxx11_abi})
  target_link_libraries(TorchWheel::torch INTERFACE ${torch_libraries})
endif()
