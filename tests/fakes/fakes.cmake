# fakes.cmake - the stand-in for the CUDA runtime and driver, where there are headers:
# linked into the test programs beside the module's own objects.

if(NOT TARGET weir_cuda_objects)
    return()
endif()
find_file(WEIR_CUDA_HEADER cuda_runtime_api.h PATHS ${cuda_include_dirs}
          NO_DEFAULT_PATH NO_CACHE REQUIRED)
get_filename_component(cuda_headers ${WEIR_CUDA_HEADER} DIRECTORY)

set(fakes_sources
    cuda_driver.c cuda_mapping.c cudart_device.c cudart_graph.c cudart_ipc.c
    cudart_memory.c cudart_pool.c cudart_pool_ipc.c cudart_stream.c cudart_work.c
    fakes.c fakes_capture.c fakes_context.c)
list(TRANSFORM fakes_sources PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/fakes/)
set(fakes_maker ${CMAKE_CURRENT_SOURCE_DIR}/fakes/make_fakes.py)
set(fakes_made ${CMAKE_CURRENT_BINARY_DIR}/fakes)
file(MAKE_DIRECTORY ${fakes_made})
add_custom_command(
    OUTPUT ${fakes_made}/fakes_errors.h ${fakes_made}/fakes_missing.c
    COMMAND ${WEIR_PYTHON} ${fakes_maker} ${cuda_headers} ${fakes_made} ${fakes_sources}
    DEPENDS ${fakes_maker} ${fakes_sources} ${WEIR_CUDA_HEADER})

# weir_fakes(TARGET KIND SOURCE...): the stand-in as a library of that kind.
function(weir_fakes target kind)
    add_library(${target} ${kind} ${fakes_sources} ${fakes_made}/fakes_errors.h
                ${fakes_made}/fakes_missing.c ${ARGN})
    weir_house(${target})
    target_include_directories(${target} PRIVATE
        ${fakes_made} ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include
        ${PROJECT_SOURCE_DIR}/src)
    target_include_directories(${target} SYSTEM PRIVATE ${cuda_include_dirs})
endfunction()

weir_fakes(weir_fakes STATIC fakes/primitives.c fakes/primitives_range.c
           fakes/process.c fakes/shared.c)
target_link_libraries(weir_fakes PUBLIC weir_test PkgConfig::CMOCKA)
# Tests that call the runtime themselves, as a program would.
target_include_directories(weir_fakes SYSTEM PUBLIC ${cuda_include_dirs})

target_compile_definitions(weir_support_code PRIVATE WEIR_TEST_CUDA=1)
target_sources(weir_support_code PRIVATE $<TARGET_OBJECTS:weir_cuda_objects>)
target_link_libraries(weir_support_code PUBLIC weir_fakes)

# The same as a shared object, with an emulated device of its own inside; and a folder
# with the module linked to it, libweir.so and the command: there it is cuda:0.
# A sanitizer's runtime would have to be the first thing in a process.
if(WEIR_SANITIZE)
    return()
endif()
set(stand_in_folder ${PROJECT_BINARY_DIR}/stand_in)
weir_fakes(weir_fake_cudart SHARED $<TARGET_OBJECTS:weir>)
target_link_libraries(weir_fake_cudart PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(weir_fake_cudart PRIVATE
    LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/fakes/fakes.map
    LINKER:-z,nodelete LINKER:-z,defs)
weir_cuda_module(weir_cuda_stand_in weir_fake_cudart)
set_target_properties(weir_fake_cudart weir_cuda_stand_in PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${stand_in_folder}
    BUILD_RPATH "\$ORIGIN"
    LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/fakes/fakes.map)
set(stand_in_copies ${CMAKE_COMMAND} -E copy_if_different $<TARGET_FILE:weir>
    ${stand_in_folder}/$<TARGET_SONAME_FILE_NAME:weir>
    COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_SONAME_FILE_NAME:weir>
    ${stand_in_folder}/$<TARGET_LINKER_FILE_NAME:weir>)
set(stand_in_needs weir weir_fake_cudart weir_cuda_stand_in)
if(TARGET weir_tool)
    list(APPEND stand_in_copies COMMAND ${CMAKE_COMMAND} -E copy_if_different
         $<TARGET_FILE:weir_tool> ${stand_in_folder})
    list(APPEND stand_in_needs weir_tool)
endif()
add_custom_target(stand_in ALL COMMAND ${stand_in_copies} DEPENDS ${stand_in_needs}
                  VERBATIM)
