# The manual pages in build/man, written from the --help of the programs.
find_program(PYTHON3 python3)
if(NOT PYTHON3)
  message(STATUS "no python3: the manual pages are not written")
  return()
endif()
set(documented trainyard trainyard-train trainyard-controller trainyard-executor trainyard-worker trainyard-program
    trainyard-code trainyard-environment trainyard-data)
foreach(program IN LISTS documented)
  list(APPEND documented_files $<TARGET_FILE:${program}>)
endforeach()
add_custom_command(OUTPUT man.stamp
  COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/man.py ${PROJECT_VERSION} ${CMAKE_BINARY_DIR}/man ${documented_files}
  COMMAND ${CMAKE_COMMAND} -E touch man.stamp
  DEPENDS ${CMAKE_CURRENT_LIST_DIR}/man.py ${documented} VERBATIM)
add_custom_target(man DEPENDS man.stamp)
add_dependencies(programs man)
install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION share/man/man1 FILES_MATCHING PATTERN "*.1")
install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION share/man/man8 FILES_MATCHING PATTERN "*.8")
