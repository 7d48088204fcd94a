# steps.sh - what tools/test, tools/demo and .ci/run have in common; sourced, from the
# top folder.
# shellcheck shell=bash

jobs=${WEIR_JOBS:-$(nproc)}

# build PRESET [TARGET...]: configures and builds in build/PRESET.
build() {
    local preset=$1
    shift
    echo "build: $preset, in build/$preset"
    # A tree that was moved or copied with its build folder starts that one afresh.
    local cache=build/$preset/CMakeCache.txt
    if [ -f "$cache" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$cache"
    then
        rm -rf "build/$preset"
    fi
    rm -f "build/$preset/tests.xml"
    local said
    said=$(cmake --preset "$preset" 2>&1) || { echo "$said"; return 1; }
    cmake --build "build/$preset" -j "$jobs" ${1:+--target "$@"}
}

# run_tests PRESET quick|full [OPTION...]: runs every test of build/PRESET, or those
# that the options of ctest leave; then says what bounds they ran at, and how many there
# were.
run_tests() {
    local preset=$1 bound=$2 limit=120 fixed=() part=() status=0
    shift 2
    [ "$bound" = quick ] || limit=1200
    # Programs that are left out by their label leave their bounds out.
    case ${1-} in -L*) part=(--part) ;; esac
    # Sanitizers take many times as long, and programs that they do not reach are left
    # out: those of Python, and for threads those of one thread.
    if grep -q '^WEIR_SANITIZE:.*=.' "build/$preset/CMakeCache.txt"; then
        limit=600
        part=(--part)
    fi
    # The thread sanitizer wants its usual addresses, which some kernels' wider
    # randomisation does not leave free.
    if grep -q '^WEIR_SANITIZE:.*thread' "build/$preset/CMakeCache.txt" &&
        setarch -R true 2> /dev/null
    then
        fixed=(setarch -R)
    fi
    WEIR_BOUND=$bound "${fixed[@]}" ctest --test-dir "build/$preset" -j "$jobs" \
        --timeout "$limit" --output-on-failure --no-tests=error \
        --output-junit tests.xml "$@" || status=$?
    /usr/bin/python3 tools/check_bounds.py \
        "build/$preset/Testing/Temporary/LastTest.log" "$bound" "${part[@]}" ||
        status=1
    report_count "$preset" "$bound"
    return "$status"
}

# count_of PRESET tests|failures|skipped: from the last run; 0 if there was none.
count_of() {
    local found
    found=$(sed -n "/<testsuite /,/>/s/.*\\b$2=\"\\([0-9]*\\)\".*/\\1/p" \
            "build/$1/tests.xml" 2> /dev/null | head -n 1)
    echo "${found:-0}"
}

report_count() {
    local log=build/$1/Testing/Temporary/LastTest.log cases
    cases=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test(s).*/\1/p' "$log" |
            awk '{ n += $1 } END { print n + 0 }')
    echo "tests: $1 at the $2 bounds: $(count_of "$1" tests) tests," \
         "$(count_of "$1" failures) failed, $(count_of "$1" skipped) skipped;" \
         "$cases cases passed inside them"
}
