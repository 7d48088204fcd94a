# jemalloc.cmake - libweir_jemalloc.so, where Debian's libjemalloc-dev or the like is.
#
# It has a jemalloc of its own inside, from the archive that is made for shared objects,
# and exports nothing of it: linking it leaves a program's malloc alone, which linking
# libjemalloc.so would not.
set(WEIR_JEMALLOC AUTO CACHE STRING
    "The resource jemalloc: ON, OFF, or AUTO (where libjemalloc_pic.a is found)")
find_path(WEIR_JEMALLOC_INCLUDE_DIR jemalloc/jemalloc.h)
find_library(WEIR_JEMALLOC_ARCHIVE NAMES libjemalloc_pic.a)
mark_as_advanced(WEIR_JEMALLOC_INCLUDE_DIR WEIR_JEMALLOC_ARCHIVE)
if(WEIR_JEMALLOC STREQUAL "OFF")
    return()
endif()
if(NOT WEIR_JEMALLOC_INCLUDE_DIR OR NOT WEIR_JEMALLOC_ARCHIVE)
    if(WEIR_JEMALLOC STREQUAL "ON")
        message(FATAL_ERROR "WEIR_JEMALLOC is ON, and there is no libjemalloc_pic.a")
    endif()
    message(STATUS "Weir: without the resource jemalloc")
    return()
endif()
if("thread" IN_LIST WEIR_SANITIZE) # which does not see the locks in the archive
    return()
endif()

set(jemalloc_map ${PROJECT_SOURCE_DIR}/jemalloc/weir_jemalloc.map)
file(GLOB jemalloc_sources CONFIGURE_DEPENDS jemalloc/*.c)

# One for users, and one for tests, which takes the library's functions from whatever
# program it is linked to.
function(weir_jemalloc_library target)
    add_library(${target} SHARED ${jemalloc_sources})
    weir_house(${target})
    target_include_directories(${target} SYSTEM PRIVATE ${WEIR_JEMALLOC_INCLUDE_DIR})
    target_link_libraries(${target} PRIVATE
        ${WEIR_JEMALLOC_ARCHIVE} Threads::Threads ${CMAKE_DL_LIBS} m)
    target_link_options(${target} PRIVATE
        LINKER:--version-script=${jemalloc_map} LINKER:-z,nodelete)
    set_target_properties(${target} PROPERTIES
        C_VISIBILITY_PRESET hidden LINK_DEPENDS ${jemalloc_map})
endfunction()

weir_jemalloc_library(weir_jemalloc)
add_library(weir::weir_jemalloc ALIAS weir_jemalloc)
target_link_libraries(weir_jemalloc PUBLIC weir)
set_target_properties(weir_jemalloc PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
    INSTALL_RPATH "\$ORIGIN")

# Installation: a component, and a CMake package, of its own.
set(jemalloc_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weir_jemalloc)
set(jemalloc_config ${PROJECT_BINARY_DIR}/weir_jemallocConfig.cmake)
file(WRITE ${jemalloc_config}
     "include(CMakeFindDependencyMacro)\n"
     "find_dependency(weir ${PROJECT_VERSION})\n"
     "include(\${CMAKE_CURRENT_LIST_DIR}/weir_jemallocTargets.cmake)\n")
write_basic_package_version_file(
    ${PROJECT_BINARY_DIR}/weir_jemallocConfigVersion.cmake
    COMPATIBILITY SameMajorVersion)
install(TARGETS weir_jemalloc EXPORT weir_jemalloc_targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT weir_jemalloc
        NAMELINK_COMPONENT weir_jemalloc)
install(FILES include/weir/jemalloc.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weir COMPONENT weir_jemalloc)
install(EXPORT weir_jemalloc_targets FILE weir_jemallocTargets.cmake
        NAMESPACE weir:: DESTINATION ${jemalloc_package_dir} COMPONENT weir_jemalloc)
install(FILES ${jemalloc_config}
              ${PROJECT_BINARY_DIR}/weir_jemallocConfigVersion.cmake
        DESTINATION ${jemalloc_package_dir} COMPONENT weir_jemalloc)
