/* support_leaf.c - see support_leaf.h. */
#include "support_leaf.h"

scene scene_begin(uint64_t seed, const char *spec)
{
    scene s = { .device = open_stepped(support_seed(seed)) };
    if (spec != NULL)
        must_ok(weir_resource_open(s.device, spec, &s.mr));
    s.a = make_stream(s.device, WEIR_STREAM_NON_BLOCKING);
    s.b = make_stream(s.device, WEIR_STREAM_NON_BLOCKING);
    return s;
}

void scene_end(scene *s)
{
    weir_resource_unref(s->mr);
    end_stream(s->device, s->a);
    end_stream(s->device, s->b);
    close_emulated(s->device);
}

uint64_t scene_stall(scene *s, weir_stream stream)
{
    uint64_t gate;
    must_ok(weir_emulated_stall(s->device, stream, &gate));
    return gate;
}

void scene_open_gate(scene *s, uint64_t gate)
{
    must_ok(weir_emulated_open_gate(s->device, gate));
}
