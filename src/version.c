/* version.c - which Weir this is, and how it was built. */
#include "weir/version.h"

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

uint32_t weir_version(void)
{
    return WEIR_VERSION;
}

const char *weir_version_string(void)
{
    return TEXT(WEIR_VERSION_MAJOR) "." TEXT(WEIR_VERSION_MINOR) "."
           TEXT(WEIR_VERSION_PATCH);
}

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "an unknown compiler"
#endif

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZER ", address sanitizer"
#elif defined(__SANITIZE_THREAD__)
#define SANITIZER ", thread sanitizer"
#else
#define SANITIZER ""
#endif

#ifdef NDEBUG
#define CHECKS "release"
#else
#define CHECKS "with debug checks"
#endif

const char *weir_build_string(void)
{
    return "weir " TEXT(WEIR_VERSION_MAJOR) "." TEXT(WEIR_VERSION_MINOR) "."
           TEXT(WEIR_VERSION_PATCH) ", " CHECKS ", " COMPILER SANITIZER;
}
