# The system's clang, for libFuzzer, in the version that ./dev installs.
execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/../dev packages OUTPUT_VARIABLE packages COMMAND_ERROR_IS_FATAL ANY)
if(NOT packages MATCHES "clang-([0-9]+)")
  message(FATAL_ERROR "./dev packages names no clang")
endif()
set(CMAKE_C_COMPILER clang-${CMAKE_MATCH_1})
set(CMAKE_CXX_COMPILER clang++-${CMAKE_MATCH_1})
