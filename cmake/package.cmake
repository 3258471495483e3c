# The manual pages, and what `cpack -G DEB` puts into a package. Included after install.cmake.

# Pages are made from the help texts, so the program must run here.
find_program(KVANT_PYTHON NAMES python3 DOC "Python 3, for the manual pages")
mark_as_advanced(KVANT_PYTHON)
if(TARGET kvant_cli AND KVANT_PYTHON AND NOT CMAKE_CROSSCOMPILING AND NOT KVANT_SANITIZE)
  # Writes the parts of docs/ that are made: the page of commands, and a picture.
  add_custom_target(kvant_docs
    COMMAND ${KVANT_PYTHON} ${CMAKE_SOURCE_DIR}/cmake/make_commands.py $<TARGET_FILE:kvant_cli>
      ${CMAKE_SOURCE_DIR}/docs/commands.md
    COMMAND ${KVANT_PYTHON} ${CMAKE_SOURCE_DIR}/docs/draw_speed.py VERBATIM)
  set(manual ${CMAKE_BINARY_DIR}/man)
  add_custom_command(OUTPUT ${manual}/kvant.1
    COMMAND ${KVANT_PYTHON} ${CMAKE_SOURCE_DIR}/cmake/make_manual.py $<TARGET_FILE:kvant_cli> ${manual}
    DEPENDS kvant_cli ${CMAKE_SOURCE_DIR}/cmake/make_manual.py ${CMAKE_SOURCE_DIR}/cmake/help_text.py VERBATIM)
  add_custom_target(kvant_manual ALL DEPENDS ${manual}/kvant.1)
  install(DIRECTORY ${manual}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT common
    FILES_MATCHING PATTERN *.1)
endif()

# The documents and all that they have links to, in folders as they are here.
install(FILES ARCHITECTURE.md STYLE.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT common)
install(DIRECTORY docs bench models DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT common
  FILES_MATCHING REGEX "\\.(md|svg|png)$" PATTERN results/*.csv
  PATTERN reference EXCLUDE PATTERN compare* EXCLUDE PATTERN problems EXCLUDE)
install(DIRECTORY examples findings DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT common
  FILES_MATCHING REGEX "\\.(md|c|cpp|py|sh|bash)$")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kvant)
set(CPACK_PACKAGE_VENDOR kvant)
set(CPACK_PACKAGE_CONTACT "The kvant developers <kvant@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "CPU-first inference engine for GGUF language models")
set(CPACK_PACKAGE_DESCRIPTION "Runs, quantizes and measures language models in GGUF files, without a GPU: the program kvant,
its library for C++, C and Python, and small models to try.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
# kvant transcribe opens these when it reads sound.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libsndfile1, libsoxr0")
# Programs that are compiled against the static library need these.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS
  "libfmt-dev, libpcre2-dev, libutf8proc-dev, libxxhash-dev, zlib1g-dev, libdnnl-dev, libopenblas-dev")
include(CPack)
