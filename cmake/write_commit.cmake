# Writes the header OUT that defines KVANT_COMMIT, the commit checked out in SOURCE_DIR. A tree
# without git, or with a git that refuses to read it, is "unknown".
set(commit "")
if(EXISTS ${SOURCE_DIR}/.git)
  execute_process(COMMAND git rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE_DIR}
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(commit STREQUAL "")
  set(commit unknown)
endif()
file(WRITE ${OUT} "#define KVANT_COMMIT \"${commit}\"\n")
