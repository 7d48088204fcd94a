/* growable_pause.h - the pause of a growable resource: its chunks go back to the
 * device, and are mapped anew where they were. */
#ifndef WEIR_GROWABLE_PAUSE_H
#define WEIR_GROWABLE_PAUSE_H

#include "growable_pages.h"

typedef struct weir__pause weir__pause;

/* `pages` outlive it. */
weir_status weir__pause_create(weir_device *device, weir__pages *pages,
                               weir__pause **out);
/* Nothing is out: what is kept on the host goes back, and the pages are stopped no
 * more. */
void weir__pause_end(weir__pause *pause);

/* ---- growable.c ---- */

/* That of the growable at the bottom of the chain of `mr`, which *leaf becomes; null:
 * there is none. */
weir__pause *weir__growable_pause_of(weir_resource *mr, weir_resource **leaf);
/* Waits on the host for what was given back to such a leaf, and no capture has. */
weir_status weir__growable_settle_sync(weir_resource *leaf);

#endif
