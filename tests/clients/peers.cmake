# peers.cmake - what tools/peers has installed, asked anew at each configuration:
#
#   weir_peers_python   its interpreter; empty where it has not been
#   weir_dlpack_dir     the folder with dlpack/dlpack.h, of 1.3; empty likewise
set(WEIR_PEERS ${PROJECT_SOURCE_DIR}/build/peers CACHE PATH "What tools/peers has made")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             ${CMAKE_CURRENT_SOURCE_DIR}/clients/requirements.txt)

if(EXISTS ${WEIR_PEERS}/requirements.txt)
    set(weir_peers_python ${WEIR_PEERS}/bin/python)
    execute_process(
        COMMAND ${weir_peers_python} -c "import importlib.util as util
print(*util.find_spec('tvm_ffi').submodule_search_locations)"
        OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE
        COMMAND_ERROR_IS_FATAL ANY)
    find_path(weir_dlpack_dir dlpack/dlpack.h PATHS ${found}/include
              NO_DEFAULT_PATH NO_CACHE REQUIRED)
else()
    set(weir_peers_python "")
    set(weir_dlpack_dir "")
    message(STATUS "Weir: without DLPack's header; tools/setup --peers gets it")
endif()

# What weir.py needs in C. The source that weir_abi.py writes only compiles where it and
# C agree about every field of every struct: of DLPack's too where its header is there.
function(weir_client_library)
    set(client ${CMAKE_CURRENT_SOURCE_DIR}/clients)
    set(layout ${CMAKE_CURRENT_BINARY_DIR}/client_layout.c)
    add_custom_command(
        OUTPUT ${layout}
        COMMAND ${CMAKE_COMMAND} -E env PYTHONDONTWRITEBYTECODE=1
                ${WEIR_PYTHON} ${client}/weir_abi.py ${layout}
        DEPENDS ${client}/weir_abi.py)
    add_library(weir_client SHARED ${client}/capsule.c ${layout})
    weir_house(weir_client)
    target_include_directories(weir_client PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(weir_client PRIVATE ${CMAKE_DL_LIBS})
    target_link_options(weir_client PRIVATE LINKER:-z,defs)
    set_target_properties(weir_client PROPERTIES C_VISIBILITY_PRESET hidden)
    if(weir_dlpack_dir)
        target_compile_definitions(weir_client PRIVATE CLIENT_DLPACK=1)
        target_include_directories(weir_client SYSTEM PRIVATE ${weir_dlpack_dir})
    endif()
    add_dependencies(checklist weir weir_client)
endfunction()

# weir_peer(NAME LIBRARY PEER DEVICE...): the test NAME, of clients/peers.py.
function(weir_peer name library)
    add_test(NAME ${name} COMMAND
             ${WEIR_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/clients/peers.py ${ARGN})
    set_tests_properties(${name} PROPERTIES
        LABELS checklist SKIP_RETURN_CODE 77 ENVIRONMENT
        "PYTHONDONTWRITEBYTECODE=1;WEIR_LIBRARY=${library};\
WEIR_CLIENT=$<TARGET_FILE:weir_client>;WEIR_PEERS_PYTHON=${weir_peers_python}")
endfunction()

# A sanitizer's runtime would have to be the first thing in the process.
function(weir_peer_tests)
    if(WEIR_SANITIZE)
        return()
    endif()
    weir_client_library()
    foreach(peer module numpy1 numpy2 torch tvm_ffi ipc)
        weir_peer(client_${peer} $<TARGET_FILE:weir> ${peer} stepped threads)
        if(TARGET weir_fake_cudart)
            weir_peer(client_${peer}_stand_in
                      ${stand_in_folder}/$<TARGET_LINKER_FILE_NAME:weir>
                      ${peer} stand-in)
        endif()
    endforeach()
    if(TARGET weir_fake_cudart)
        foreach(peer cudart cudart_cai) # which is nothing without a runtime
            weir_peer(client_${peer}_stand_in
                      ${stand_in_folder}/$<TARGET_LINKER_FILE_NAME:weir>
                      ${peer} stand-in)
        endforeach()
        add_dependencies(checklist stand_in)
    endif()
endfunction()
