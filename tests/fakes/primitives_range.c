/* primitives_range.c - the primitives of ranges, and of memory that moves; see
 * primitives.h. */
#include "fakes/primitives.h"

#define PIECE WEIR__RANGE_GRANULE

/* In the middle of its range. */
static void *piece_of(const scene *it)
{
    return (char *)it->range + PIECE;
}

weir_status act_range_reserve(scene *it)
{
    return weir__range_reserve(it->device, 3 * PIECE, &it->range);
}

weir_status act_range_release(scene *it)
{
    weir_status status = weir__range_release(it->device, it->range, 3 * PIECE);
    if (status == WEIR_OK)
        it->range = NULL;
    return status;
}

weir_status act_range_map(scene *it)
{
    weir_status status = weir__range_map(it->device, piece_of(it), PIECE);
    if (status == WEIR_OK)
        it->ptr = piece_of(it);
    return status;
}

weir_status act_range_unmap(scene *it)
{
    weir_status status = weir__range_unmap(it->device, it->ptr, PIECE);
    if (status == WEIR_OK)
        it->ptr = NULL;
    return status;
}

void prepare_range(scene *it)
{
    must_ok(act_range_reserve(it));
}

void prepare_piece(scene *it)
{
    prepare_range(it);
    must_ok(act_range_map(it));
}

/* What was not mapped in full can be mapped now. */
void end_range(scene *it)
{
    if (it->range == NULL)
        return;
    if (it->ptr == NULL)
        must_ok(act_range_map(it));
    must_ok(weir__fill(it->device, it->stream, it->ptr, 1, PIECE));
    must_ok(weir__stream_sync(it->device, it->stream));
    must_ok(act_range_unmap(it));
    must_ok(act_range_release(it));
}

/* ---- memory that moves ---- */

weir_status act_prefetch(scene *it)
{
    return weir__prefetch(it->device, it->stream, it->ptr, BYTES, WEIR__PLACE_DEVICE);
}

weir_status act_prefer(scene *it)
{
    return weir__prefer(it->device, it->ptr, BYTES, WEIR__PLACE_HOST);
}
