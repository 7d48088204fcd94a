/* module.c - finds libweir_cuda.so, and opens devices with it.
 *
 * It lies beside libweir.so, in the build tree, in an installation and in a copy of
 * either; if not, the dynamic linker's own rules find it (LD_LIBRARY_PATH, the
 * RUNPATH of libweir.so, the system's cache). Once loaded it stays. */
#include "device/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"
#include "weir/version.h"

static weir_status record_failure(weir_status status, int32_t native_code,
                                  const char *sentence)
{
    return weir__fail_native(status, native_code, "%s", sentence);
}

static const weir__module_host services = {
    .fail = record_failure,
    .host_alloc = weir__host_alloc,
    .host_free = weir__host_free,
    .mutex_init = weir__mutex_init,
    .mutex_destroy = weir__mutex_destroy,
    .mutex_lock = weir__mutex_lock,
    .mutex_unlock = weir__mutex_unlock,
};

/* The name of the module's file beside the object that this code is in. False: the name
 * is too long, or there is no such file. */
static bool path_beside(char path[PATH_MAX])
{
    Dl_info here;
    if (dladdr(&services, &here) == 0 || here.dli_fname == NULL)
        return false;
    const char *slash = strrchr(here.dli_fname, '/');
    int folder = slash == NULL ? 0 : (int)(slash - here.dli_fname) + 1;
    int length = snprintf(path, PATH_MAX, "%.*s%s", folder, here.dli_fname,
                          WEIR__MODULE_FILE);
    return length < PATH_MAX && slash != NULL && access(path, F_OK) == 0;
}

static weir_status fail_load(void)
{
    const char *why = dlerror();
    return weir__fail(WEIR_NOT_SUPPORTED,
                      "CUDA devices need Weir's module for them, which cannot be "
                      "loaded: %.300s",
                      why != NULL ? why : WEIR__MODULE_FILE);
}

static weir_status module_load(weir__module_entry **out)
{
    char path[PATH_MAX];
    void *object = dlopen(path_beside(path) ? path : WEIR__MODULE_FILE,
                          RTLD_NOW | RTLD_LOCAL);
    if (object == NULL)
        return fail_load();
    void *entry = dlsym(object, WEIR__MODULE_ENTRY);
    if (entry == NULL)
        return fail_load(); /* not ours: it stays, for nobody knows what it has begun */
    memcpy(out, &entry, sizeof *out); /* ISO C has no cast for it, POSIX does */
    return WEIR_OK;
}

static weir_status module_check(const weir__module *module)
{
    bool same = module->struct_size == sizeof *module &&
                module->ops_size == sizeof(weir__device_ops) &&
                module->version == WEIR_VERSION;
    if (same)
        return WEIR_OK;
    unsigned version = module->version;
    return weir__fail(WEIR_NOT_SUPPORTED,
                      "the module for CUDA devices that was found belongs to another "
                      "build of Weir, of version %u.%u.%u; this is %s",
                      version / 10000, version / 100 % 100, version % 100,
                      weir_version_string());
}

#ifdef WEIR_TESTING
const weir__module *weir__module_linked;
#endif

static weir_status module_find(const weir__module **out)
{
#ifdef WEIR_TESTING
    *out = weir__module_linked;
    if (*out != NULL)
        return WEIR_OK;
#endif
    weir__module_entry *entry;
    weir_status status = module_load(&entry);
    if (status == WEIR_OK)
        *out = entry();
    return status;
}

weir_status weir__cuda_open(int32_t ordinal, const weir__device_ops **ops, void **self)
{
    const weir__module *module;
    weir_status status = module_find(&module);
    if (status == WEIR_OK)
        status = module_check(module);
    if (status != WEIR_OK)
        return status;
    return module->open(&services, ordinal, ops, self);
}
