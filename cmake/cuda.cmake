# cuda.cmake - libweir_cuda.so, where a CUDA Toolkit is found.
#
#   weir_cuda_objects   the module's code, where there are headers at all
#   weir_cuda           the module, where there is a static runtime to link it with

set(cuda_include_dirs "")
if(NOT WEIR_CUDA STREQUAL "OFF")
    if(WEIR_CUDA_INCLUDE_DIR)
        set(cuda_include_dirs ${WEIR_CUDA_INCLUDE_DIR})
    else()
        find_package(CUDAToolkit 12 QUIET)
        if(CUDAToolkit_FOUND)
            set(cuda_include_dirs ${CUDAToolkit_INCLUDE_DIRS})
        endif()
    endif()
endif()
if(NOT cuda_include_dirs)
    if(WEIR_CUDA STREQUAL "ON")
        message(FATAL_ERROR "WEIR_CUDA is ON, and there is no CUDA Toolkit >= 12")
    endif()
    message(STATUS "Weir: without the module for CUDA devices")
    return()
endif()

file(GLOB cuda_sources CONFIGURE_DEPENDS src/device/cuda*.c)
add_library(weir_cuda_objects OBJECT ${cuda_sources})
weir_house(weir_cuda_objects)
target_include_directories(weir_cuda_objects PRIVATE include src)
target_include_directories(weir_cuda_objects SYSTEM PRIVATE ${cuda_include_dirs})
set_target_properties(weir_cuda_objects PROPERTIES
    POSITION_INDEPENDENT_CODE ON
    C_VISIBILITY_PRESET hidden)

if(WEIR_COVERAGE)
    target_compile_options(weir_cuda_objects PRIVATE --coverage -O0)
    add_link_options(--coverage)
endif()

# Links the objects to `runtime` as the module TARGET.
function(weir_cuda_module target)
    add_library(${target} MODULE $<TARGET_OBJECTS:weir_cuda_objects>)
    target_link_libraries(${target} PRIVATE ${ARGN})
    target_link_options(${target} PRIVATE ${sanitize_options}
        LINKER:--version-script=${PROJECT_SOURCE_DIR}/src/weir_cuda.map
        LINKER:-z,nodelete)
    set_target_properties(${target} PROPERTIES
        LINKER_LANGUAGE C
        OUTPUT_NAME weir_cuda
        LINK_DEPENDS ${PROJECT_SOURCE_DIR}/src/weir_cuda.map)
endfunction()

if(NOT TARGET CUDA::cudart_static)
    message(STATUS "Weir: the module for CUDA devices is tested only, not built: there "
                   "is no static runtime")
    return()
endif()
weir_cuda_module(weir_cuda CUDA::cudart_static)
install(TARGETS weir_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT weir)
