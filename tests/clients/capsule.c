/* capsule.c - what tests/clients/weir.py needs in C: capsules around DLPack's tensors,
 * and a deleter that lets a Python object go.
 *
 * Both may be called while the interpreter ends, when a callback into Python crashes.
 * The functions of Python's that they call are found in the process that this is loaded
 * into; no header of Python's is needed, and nothing is assumed of what an object looks
 * like. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>

#include "weir/dlpack.h"

#define CLIENT_API __attribute__((visibility("default")))

typedef struct _object object; /* PyObject */

static struct {
    object *(*capsule_new)(void *ptr, const char *name, void (*destructor)(object *));
    int (*capsule_is_valid)(object *capsule, const char *name);
    void *(*capsule_get_pointer)(object *capsule, const char *name);
    int (*capsule_set_name)(object *capsule, const char *name);
    int (*is_initialised)(void);
    int (*gil_ensure)(void); /* PyGILState_STATE is an enum */
    void (*gil_release)(int);
    void (*increase)(object *);
    void (*decrease)(object *);
    void (*error_fetch)(object **type, object **value, object **traceback);
    void (*error_restore)(object *type, object *value, object *traceback);
} python;

static void (*delete_tensor)(weir_dlpack tensor);

/* Capsules keep the address of their name: these outlive all of them. */
static const char legacy_name[] = "dltensor";
static const char legacy_used_name[] = "used_dltensor";
static const char versioned_name[] = "dltensor_versioned";
static const char versioned_used_name[] = "used_dltensor_versioned";

CLIENT_API bool client_begin(void (*delete)(weir_dlpack tensor));
CLIENT_API object *client_capsule_new(weir_dlpack tensor);
CLIENT_API bool client_capsule_look(object *capsule, weir_dlpack *out);
CLIENT_API bool client_capsule_set_used(object *capsule);
CLIENT_API void client_keep(object *owner);
CLIENT_API void client_let_go(void *context, void *ptr, size_t bytes,
                              weir_stream stream);

/* Data and function pointers have one representation here, as POSIX wants it. */
static bool find(const char *name, void *function)
{
    *(void **)function = dlsym(RTLD_DEFAULT, name);
    return *(void **)function != NULL;
}

/* `delete` is weir_dlpack_delete, of the libweir.so that the process uses. False: this
 * is no Python. */
bool client_begin(void (*delete)(weir_dlpack tensor))
{
    delete_tensor = delete;
    return find("PyCapsule_New", &python.capsule_new) &&
           find("PyCapsule_IsValid", &python.capsule_is_valid) &&
           find("PyCapsule_GetPointer", &python.capsule_get_pointer) &&
           find("PyCapsule_SetName", &python.capsule_set_name) &&
           find("Py_IsInitialized", &python.is_initialised) &&
           find("PyGILState_Ensure", &python.gil_ensure) &&
           find("PyGILState_Release", &python.gil_release) &&
           find("Py_IncRef", &python.increase) &&
           find("Py_DecRef", &python.decrease) &&
           find("PyErr_Fetch", &python.error_fetch) &&
           find("PyErr_Restore", &python.error_restore);
}

/* The tensor in a capsule that nobody has consumed; false: it is none. */
bool client_capsule_look(object *capsule, weir_dlpack *out)
{
    *out = (weir_dlpack){ NULL, NULL };
    if (python.capsule_is_valid(capsule, versioned_name)) {
        out->versioned = python.capsule_get_pointer(capsule, versioned_name);
        return true;
    }
    if (python.capsule_is_valid(capsule, legacy_name)) {
        out->legacy = python.capsule_get_pointer(capsule, legacy_name);
        return true;
    }
    return false;
}

/* Who consumes a tensor renames its capsule: then there is nothing to do. Often this is
 * called with an exception on its way: a deleter that runs Python must not see it. */
static void capsule_end(object *capsule)
{
    weir_dlpack tensor;
    if (client_capsule_look(capsule, &tensor)) {
        object *type, *value, *traceback;
        python.error_fetch(&type, &value, &traceback);
        delete_tensor(tensor);
        python.error_restore(type, value, traceback);
    }
}

/* Takes the tensor over; null, with Python's error set: it is still the caller's. */
object *client_capsule_new(weir_dlpack tensor)
{
    return tensor.versioned
        ? python.capsule_new(tensor.versioned, versioned_name, capsule_end)
        : python.capsule_new(tensor.legacy, legacy_name, capsule_end);
}

/* The capsule's tensor is another's from now on. */
bool client_capsule_set_used(object *capsule)
{
    bool is_versioned = python.capsule_is_valid(capsule, versioned_name);
    return python.capsule_set_name(
               capsule, is_versioned ? versioned_used_name : legacy_used_name) == 0;
}

/* `owner` lives until client_let_go has been called with it. */
void client_keep(object *owner)
{
    python.increase(owner);
}

/* A weir_deleter. Once the interpreter ends nothing of it can be let go of any more. */
void client_let_go(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    (void)ptr, (void)bytes, (void)stream;
    if (!python.is_initialised()) {
        return;
    }
    int state = python.gil_ensure();
    python.decrease(context);
    python.gil_release(state);
}
