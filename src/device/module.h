/* module.h - a kind of device that lives in a library of its own, which libweir.so
 * opens when one is first asked for; today CUDA's, libweir_cuda.so.
 *
 * The module is built from the same tree and shares device.h with the library, so both
 * must be of exactly the same version: each tells its own. It takes nothing from the
 * library but what it is handed here. */
#ifndef WEIR_DEVICE_MODULE_H
#define WEIR_DEVICE_MODULE_H

#include "device/device.h"

/* What the library gives the module; outlives it. */
typedef struct weir__module_host {
    /* Records a failure for weir_last_error(), and returns `status`. */
    weir_status (*fail)(weir_status status, int32_t native_code, const char *sentence);
    void *(*host_alloc)(size_t bytes);
    void (*host_free)(void *ptr);
    void (*mutex_init)(weir__mutex *mutex, weir__rank rank);
    void (*mutex_destroy)(weir__mutex *mutex);
    void (*mutex_lock)(weir__mutex *mutex);
    void (*mutex_unlock)(weir__mutex *mutex);
} weir__module_host;

typedef struct weir__module {
    size_t struct_size;   /* of this, of the table, */
    size_t ops_size;
    uint32_t version;     /* and WEIR_VERSION say whether the two belong together */
    /* Opens device number `ordinal`: NOT_SUPPORTED (no driver, too old a driver, no
     * such device), DEVICE_ERROR, OUT_OF_HOST_MEMORY. */
    weir_status (*open)(const weir__module_host *host, int32_t ordinal,
                        const weir__device_ops **ops, void **self);
} weir__module;

/* What a module exports. */
typedef const weir__module *weir__module_entry(void);
#define WEIR__MODULE_FILE  "libweir_cuda.so"
#define WEIR__MODULE_ENTRY "weir__cuda_module"
WEIR_API weir__module_entry weir__cuda_module;

/* The library's side: finds the module, once a call until it is there, and opens a
 * device with it. NOT_SUPPORTED: there is no module, or it is not of this version. */
weir_status weir__cuda_open(int32_t ordinal, const weir__device_ops **ops, void **self);

/* Of which ordinals the module holds the context beyond the last close: until the
 * process ends, so that work goes on. The module's own; tests end a process by it. */
extern atomic_bool weir__cuda_kept[WEIR__DEVICE_ORDINALS];

#ifdef WEIR_TESTING
/* In place of the file: what is linked into a test program, or null. */
extern const weir__module *weir__module_linked;
#endif

#endif
