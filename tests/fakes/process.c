/* process.c - the end of a process, many times in one test program. */
#include "device/module.h"
#include "fakes/fakes_internal.h"
#include "support.h"

void fakes_end_process(void)
{
    fakes_fail(NULL, 0, false, 0);
    for (int i = 0; i < WEIR__DEVICE_ORDINALS; i++) {
        if (atomic_exchange(&weir__cuda_kept[i], false))
            must_equal(fakes_release(i), CUDA_SUCCESS);
    }
}
