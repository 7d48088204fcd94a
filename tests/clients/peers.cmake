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
