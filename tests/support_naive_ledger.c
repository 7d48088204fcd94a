/* support_naive_ledger.c - the naive ledger. */
#include "support_naive_ledger.h"

#include <string.h>

#include "support.h"

const uintptr_t naive_memory[DEVICES] = { 0x4000, 0x4000 + BYTES };

/* ---- sets ---- */

void set_join(set *self, const set *other)
{
    for (size_t i = 0; i < SET_WORDS; i++)
        self->bits[i] |= other->bits[i];
}

static void set_meet(set *self, const set *other)
{
    for (size_t i = 0; i < SET_WORDS; i++)
        self->bits[i] &= other->bits[i];
}

static void set_add(set *self, uint32_t number)
{
    self->bits[number / 64] |= UINT64_C(1) << number % 64;
}

static bool set_has(const set *self, uint32_t number)
{
    return (self->bits[number / 64] >> number % 64 & 1) != 0;
}

/* ---- who knows what ---- */

void naive_meet(naive *self, naive_thread *thread)
{
    if (thread->is_met)
        return;

    bool is_first = true;
    thread->knows = self->floor;
    for (uint32_t i = 0; i < self->thread_count; i++) {
        const naive_thread *other = &self->threads[i];
        if (!other->lives || !other->is_met)
            continue;
        if (is_first)
            thread->knows = other->knows;
        set_meet(&thread->knows, &other->knows);
        is_first = false;
    }
    thread->is_met = true;
}

/* Whether the legacy stream's rules order an operation of `a` behind `b`. */
static bool is_barred(const naive_stream *a, const naive_stream *b)
{
    return a != b && b->lives && a->device == b->device &&
           ((a->is_legacy && b->is_blocking) || (a->is_blocking && b->is_legacy));
}

void naive_advance(naive *self, int stream, const naive_thread *thread,
                   bool is_operation)
{
    naive_stream *on = &self->streams[stream];
    set_join(&on->knows, &thread->knows);
    set promised = on->knows;
    for (uint32_t i = 0; i < self->stream_count; i++) {
        if (is_barred(on, &self->streams[i]))
            set_join(&promised, &self->streams[i].knows);
    }
    if (is_operation)
        on->knows = promised;
    set_add(&on->knows, self->step);
    set_add(&promised, self->step);
    self->act_stream = stream;
    self->act_knows = promised;
}

/* ---- accesses ---- */

static bool counts_at(const naive *self, const naive_access *access, uint32_t at)
{
    return !access->is_forgotten && access->begin <= at && at < access->end &&
           access->number >= self->bytes[access->device][at].since;
}

static bool overlap(const naive *self, const naive_access *access, int device,
                    uint32_t begin, uint32_t end)
{
    for (uint32_t at = begin; access->device == device && at < end; at++) {
        if (counts_at(self, access, at))
            return true;
    }
    return false;
}

static bool is_conflict(const naive *self, const naive_access *access, bool writes)
{
    return (writes || access->writes) && !set_has(&self->act_knows, access->number);
}

void naive_judge(naive *self, int device, uint32_t begin, uint32_t end, bool writes)
{
    for (uint32_t i = 0; i < self->access_count; i++) {
        const naive_access *access = &self->accesses[i];
        if (is_conflict(self, access, writes) &&
            overlap(self, access, device, begin, end))
            self->wanted.race = true;
    }
}

void naive_keep(naive *self, int device, uint32_t begin, uint32_t end,
                const char *words, bool writes)
{
    if (begin >= end)
        return;
    must(self->access_count < ACCESSES_MAX);
    self->accesses[self->access_count++] = (naive_access){
        .number = self->step, .stream = self->streams[self->act_stream].id,
        .words = words, .writes = writes, .device = device,
        .begin = begin, .end = end };
}

/* ---- what a finding says ---- */

static bool touches(const naive *self, const naive_access *access, uintptr_t address)
{
    uintptr_t memory = naive_memory[access->device];
    return address >= memory && address - memory < BYTES &&
           counts_at(self, access, (uint32_t)(address - memory));
}

/* Whether an access of that step is one that the finding tells of, at that byte. */
static bool is_told_of(const naive *self, const weir_emulated_finding *finding,
                       uint32_t step, uintptr_t address)
{
    bool writes = strstr(finding->second, "reads") == NULL;
    for (uint32_t i = 0; i < self->access_count; i++) {
        const naive_access *access = &self->accesses[i];
        if (access->number == step && access->stream == finding->first_stream &&
            touches(self, access, address) && is_conflict(self, access, writes) &&
            strcmp(access->words, finding->first) == 0)
            return true;
    }
    return false;
}

bool naive_is_true_race(const naive *self, const weir_emulated_finding *finding)
{
    for (uint32_t i = 0; i < self->access_count; i++) {
        uint32_t step = self->accesses[i].number;
        size_t told = 0;
        while (told < finding->bytes &&
               is_told_of(self, finding, step, finding->ptr + told))
            told++;
        if (told == finding->bytes)
            return true;
    }
    return false;
}

bool naive_has_state(const naive *self, const weir_emulated_finding *finding,
                     byte_state wanted)
{
    for (uintptr_t at = finding->ptr; at < finding->ptr + finding->bytes; at++) {
        int device = at >= naive_memory[1] ? 1 : 0;
        if (self->bytes[device][at - naive_memory[device]].state != wanted)
            return false;
    }
    return true;
}

/* ---- pools ---- */

void naive_pool(naive *self, int device, uint32_t begin, uint32_t end, byte_state state,
                bool counts)
{
    for (uint32_t at = begin; at < end; at++) {
        naive_byte *byte = &self->bytes[device][at];
        *byte = (naive_byte){ .state = state,
                              .since = counts ? byte->since : self->step };
    }
}

bool naive_is_behind(const naive *self, int stream, uint32_t step)
{
    return set_has(&self->streams[stream].knows, step);
}

/* ---- blocks ---- */

bool naive_find_block(const naive *self, const block *asked, bool is_of[BYTES])
{
    bool any = false;
    for (uint32_t at = asked->begin; at < asked->end; at++) {
        const naive_byte *byte = &self->bytes[asked->device][at];
        const block *known = &self->blocks[byte->block];
        is_of[at] = byte->state == OUT && known->begin == asked->begin &&
                    known->end == asked->end;
        any |= is_of[at];
    }
    return any;
}
