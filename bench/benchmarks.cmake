# benchmarks.cmake - the benchmark programs, bench_NAME, one for each allocator NAME. A
# peer that is not there is an error.
enable_language(CXX)
find_package(benchmark REQUIRED)

# The only C++ in Weir.
add_library(bench_shim STATIC shim.cc)
set_target_properties(bench_shim PROPERTIES CXX_STANDARD 17 CXX_EXTENSIONS OFF)
target_compile_options(bench_shim PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Werror)
target_link_libraries(bench_shim PUBLIC benchmark::benchmark)

add_library(bench_cases STATIC cases.c cases_loops.c cases_threads.c draws.c
            sleeper.c work.c)
weir_house(bench_cases)
target_link_libraries(bench_cases PUBLIC Threads::Threads m)

# bench_program(NAME SOURCE...)
function(bench_program name)
    add_executable(bench_${name} bench.c ${ARGN})
    weir_house(bench_${name})
    target_link_libraries(bench_${name} PRIVATE bench_cases bench_shim ${CMAKE_DL_LIBS})
    set_target_properties(bench_${name} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()

bench_program(null allocator_null.c own_cases_none.c)
bench_program(weir allocator_weir.c own_cases_weir.c cases_buffers.c
              cases_device.c)
target_link_libraries(bench_weir PRIVATE weir)

# What is not a matter of pairs, besides bench_moments.
add_executable(bench_memory memory.c allocator_weir.c)
weir_house(bench_memory)
target_link_libraries(bench_memory PRIVATE bench_cases weir)

# bench_malloc(NAME LIBRARY): a malloc, whose library's file is called LIBRARY; it stays
# although nothing names it.
function(bench_malloc name library)
    bench_program(${name} allocator_malloc.c own_cases_none.c)
    target_compile_definitions(bench_${name} PRIVATE
        BENCH_MALLOC="${name}" BENCH_MALLOC_LIBRARY="${library}.so")
    if(name STREQUAL glibc)
        return()
    endif()
    string(REGEX REPLACE "^lib" "" short ${library})
    find_library(BENCH_${name} ${short} REQUIRED)
    target_link_libraries(bench_${name} PRIVATE -Wl,--no-as-needed ${BENCH_${name}})
endfunction()

bench_malloc(glibc libc)
bench_malloc(tcmalloc libtcmalloc_minimal)
bench_malloc(jemalloc libjemalloc)
bench_malloc(mimalloc libmimalloc)
