# The project's functions and flags: ty_library, ty_program, ty_test.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# With ccache, a branch does not compile again what another branch has compiled.
find_program(CCACHE ccache)
foreach(language C CXX CUDA)
  if(CCACHE AND NOT CMAKE_${language}_COMPILER_LAUNCHER)
    set(CMAKE_${language}_COMPILER_LAUNCHER ${CCACHE})
  endif()
endforeach()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
# Asserts stay in every build: they check for our own bugs, and cost nothing compared with a step. TY_FAST is for the
# loops of a step, also in a debug build. Sanitizers find the same faults at -O1 as at -O3, where gcc takes ten times as
# long for these loops. Warnings then depend on the optimization, so only the other builds have them.
set(TY_WARNINGS -Wall -Wextra -Wshadow -Wvla -Wpointer-arith -Werror)
set(TY_C_WARNINGS ${TY_WARNINGS} -Wstrict-prototypes -Wmissing-prototypes)
set(TY_FAST -O3)
set(optimisation "-O2 -g")
if(TRAINYARD_SANITIZE)
  unset(TY_WARNINGS)
  unset(TY_C_WARNINGS)
  unset(TY_FAST)
  set(optimisation "-O1 -g1")
endif()
set(CMAKE_C_FLAGS_RELWITHDEBINFO ${optimisation})
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO ${optimisation})

add_compile_definitions(_GNU_SOURCE TRAINYARD_VERSION="${PROJECT_VERSION}")

if(TRAINYARD_SANITIZE STREQUAL "address")
  # Without UBSan's checks that ASan makes too: they are most of UBSan's checks, and of their time.
  # ASan's heap frames, which detect a use after return, are not aligned for AVX-512 vectors (GCC bug 110027). Since
  # gcc 13 they are the default, and the kernels would crash.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=null,object-size,pointer-overflow
                      -fno-sanitize-recover=undefined -fno-omit-frame-pointer --param=asan-use-after-return=0)
  add_link_options(-fsanitize=address,undefined)
elseif(TRAINYARD_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
endif()
if(TRAINYARD_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=address,undefined)
endif()

# Includes are written from the root: "base/status.h".
function(ty_flags target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:${TY_C_WARNINGS}>
                                           $<$<COMPILE_LANGUAGE:CXX>:${TY_WARNINGS}>)
endfunction()

function(ty_library target)
  add_library(${target} STATIC ${ARGN})
  ty_flags(${target})
endfunction()

function(ty_program target)
  add_executable(${target} ${ARGN})
  ty_flags(${target})
endfunction()

# All programs of ctest, and those labelled `threads`, which a build with TSan needs.
add_custom_target(test_programs)
add_custom_target(threads_tests)

# There are more than a hundred test programs, and gold links each in a quarter of the time.
find_program(LD_GOLD ld.gold)

# ty_test(name file.c ... LIBS lib ... [TIMEOUT s] [LABELS l]): a cmocka program for ctest. The programs in
# TY_LONGEST start first, in its order.
function(ty_test name)
  cmake_parse_arguments(T "" "TIMEOUT;LABELS" "LIBS" ${ARGN})
  add_executable(${name} ${T_UNPARSED_ARGUMENTS})
  ty_flags(${name})
  target_link_libraries(${name} PRIVATE ${T_LIBS} PkgConfig::CMOCKA)
  if(LD_GOLD)
    target_link_options(${name} PRIVATE -fuse-ld=gold)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  add_dependencies(test_programs ${name})
  if("threads" IN_LIST T_LABELS)
    add_dependencies(threads_tests ${name})
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300) # ends a hang: the slowest test takes a minute, or several with TSan on a busy machine
  endif()
  list(FIND TY_LONGEST ${name} place)
  if(place GREATER_EQUAL 0)
    math(EXPR cost "100 - ${place}")
    set_tests_properties(${name} PROPERTIES COST ${cost})
  endif()
  # Otherwise TSan sleeps for a second before each exit.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${T_LABELS}" SKIP_RETURN_CODE 77
    ENVIRONMENT "TRAINYARD_SOURCE=${PROJECT_SOURCE_DIR};TRAINYARD_BUILD=${CMAKE_BINARY_DIR};CMOCKA_MESSAGE_OUTPUT=TAP;GOMP_SPINCOUNT=1000;LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0;UBSAN_OPTIONS=print_stacktrace=1;TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp:exitcode=66:history_size=7:atexit_sleep_ms=10")
endfunction()
