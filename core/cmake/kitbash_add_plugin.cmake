# kitbash_add_plugin(<kind>_<name> SOURCES a.cpp ... [LIBRARIES lib ...]): one shared library libkb_<kind>_<name>.so with the
# flags every plugin needs: hidden visibility, the version script, no undefined symbols, C++20. Used in the tree and installed.
set(KITBASH_PLUGIN_MAP ${CMAKE_CURRENT_LIST_DIR}/plugin.map)
function(kitbash_add_plugin name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_library(kb_${name} MODULE ${ARG_SOURCES})
  target_link_libraries(kb_${name} PRIVATE kitbash::sdk ${ARG_LIBRARIES})
  target_compile_features(kb_${name} PRIVATE cxx_std_20)
  set_target_properties(kb_${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  if(PROJECT_NAME STREQUAL kitbash)
    set_target_properties(kb_${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/kitbash/plugins)
    install(TARGETS kb_${name} LIBRARY DESTINATION lib/kitbash/plugins)
    set_property(GLOBAL APPEND PROPERTY KITBASH_PLUGIN_TARGETS kb_${name})  # what tests of whole models load
  endif()
  target_link_options(kb_${name} PRIVATE -Wl,--version-script=${KITBASH_PLUGIN_MAP})
  if(NOT KITBASH_SANITIZE)
    target_link_options(kb_${name} PRIVATE -Wl,-z,defs)
  endif()
endfunction()
