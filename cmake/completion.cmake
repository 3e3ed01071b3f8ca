# The scripts of `trainyard completion`, where Debian's shells look for them.
set(COMPLETIONS)
foreach(shell bash zsh fish)
  set(script ${CMAKE_BINARY_DIR}/completion/trainyard.${shell})
  add_custom_command(OUTPUT ${script} DEPENDS trainyard VERBATIM
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/completion
    COMMAND trainyard completion ${shell} > ${script})
  list(APPEND COMPLETIONS ${script})
endforeach()
add_custom_target(completions ALL DEPENDS ${COMPLETIONS})
add_dependencies(programs completions)
set(COMPLETION ${CMAKE_BINARY_DIR}/completion/trainyard)
install(FILES ${COMPLETION}.bash DESTINATION share/bash-completion/completions RENAME trainyard)
install(FILES ${COMPLETION}.zsh DESTINATION share/zsh/vendor-completions RENAME _trainyard)
install(FILES ${COMPLETION}.fish DESTINATION share/fish/vendor_completions.d)
