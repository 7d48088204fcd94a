/* lines.c - see lines.h. */
#include "lines.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define LINE_BITS  6
#define TABLE_BITS 18
#define TABLE      ((size_t)1 << TABLE_BITS)
#define NOBODY     UINT32_MAX

typedef struct line {
    uintptr_t number;  /* 0: no line */
    uint32_t holders;  /* a bit for each processor that has it */
} line;

static line table[TABLE]; /* open addressing */
static size_t used;
static uint64_t moved;
static _Thread_local unsigned processor = NOBODY;

void lines_begin(unsigned number)
{
    processor = number;
}

void lines_end(void)
{
    processor = NOBODY;
}

uint64_t lines_moved(void)
{
    uint64_t count = moved;
    moved = 0;
    return count;
}

static line *line_at(uintptr_t number)
{
    size_t at = (size_t)((number * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - TABLE_BITS));
    while (table[at].number != number) {
        if (table[at].number == 0) {
            if (++used > TABLE / 4 * 3) {
                fprintf(stderr, "lines: more than there is room for\n");
                abort();
            }
            table[at].number = number;
            break;
        }
        at = (at + 1) % TABLE;
    }
    return &table[at];
}

static void touch(uintptr_t address, size_t bytes, bool stores)
{
    if (processor == NOBODY)
        return;
    const uint32_t me = UINT32_C(1) << processor;
    const uintptr_t last = (address + bytes - 1) >> LINE_BITS;
    for (uintptr_t number = address >> LINE_BITS; number <= last; number++) {
        line *it = line_at(number);
        const bool is_here = (it->holders & me) != 0;
        const bool is_elsewhere = (it->holders & ~me) != 0;
        moved += is_elsewhere && (stores || !is_here);
        it->holders = stores ? me : it->holders | me;
    }
}

/* ---- the sanitizer's names ---- */

void __tsan_init(void);
void __tsan_init(void)
{
}

#define ACCESSES(bytes)                                                             \
    void __tsan_read##bytes(void *ptr);                                             \
    void __tsan_write##bytes(void *ptr);                                            \
    void __tsan_unaligned_read##bytes(void *ptr);                                   \
    void __tsan_unaligned_write##bytes(void *ptr);                                  \
    void __tsan_volatile_read##bytes(void *ptr);                                    \
    void __tsan_volatile_write##bytes(void *ptr);                                   \
    void __tsan_read##bytes(void *ptr)                                              \
    {                                                                               \
        touch((uintptr_t)ptr, bytes, false);                                        \
    }                                                                               \
    void __tsan_write##bytes(void *ptr)                                             \
    {                                                                               \
        touch((uintptr_t)ptr, bytes, true);                                         \
    }                                                                               \
    void __tsan_unaligned_read##bytes(void *ptr)                                    \
    {                                                                               \
        touch((uintptr_t)ptr, bytes, false);                                        \
    }                                                                               \
    void __tsan_unaligned_write##bytes(void *ptr)                                   \
    {                                                                               \
        touch((uintptr_t)ptr, bytes, true);                                         \
    }                                                                               \
    void __tsan_volatile_read##bytes(void *ptr)                                     \
    {                                                                               \
        touch((uintptr_t)ptr, bytes, false);                                        \
    }                                                                               \
    void __tsan_volatile_write##bytes(void *ptr)                                    \
    {                                                                               \
        touch((uintptr_t)ptr, bytes, true);                                         \
    }

ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

void __tsan_read_range(void *ptr, size_t bytes);
void __tsan_write_range(void *ptr, size_t bytes);

void __tsan_read_range(void *ptr, size_t bytes)
{
    touch((uintptr_t)ptr, bytes, false);
}

void __tsan_write_range(void *ptr, size_t bytes)
{
    touch((uintptr_t)ptr, bytes, true);
}

/* Whatever order was asked for: this is the strongest. */
#define EXCHANGE(bits, what)                                                        \
    uint##bits##_t __tsan_atomic##bits##_##what(_Atomic uint##bits##_t *ptr,        \
                                                uint##bits##_t value, int order);   \
    uint##bits##_t __tsan_atomic##bits##_##what(_Atomic uint##bits##_t *ptr,        \
                                                uint##bits##_t value, int order)    \
    {                                                                               \
        (void)order;                                                                \
        touch((uintptr_t)ptr, sizeof *ptr, true);                                   \
        return atomic_##what(ptr, value);                                           \
    }

#define COMPARE(bits, what)                                                         \
    int __tsan_atomic##bits##_compare_exchange_##what(                              \
        _Atomic uint##bits##_t *ptr, uint##bits##_t *expected,                      \
        uint##bits##_t value, int order, int failure);                              \
    int __tsan_atomic##bits##_compare_exchange_##what(                              \
        _Atomic uint##bits##_t *ptr, uint##bits##_t *expected,                      \
        uint##bits##_t value, int order, int failure)                               \
    {                                                                               \
        (void)order;                                                                \
        (void)failure;                                                              \
        touch((uintptr_t)ptr, sizeof *ptr, true);                                   \
        return atomic_compare_exchange_##what(ptr, expected, value);                \
    }

#define ATOMICS(bits)                                                               \
    uint##bits##_t __tsan_atomic##bits##_load(_Atomic uint##bits##_t *ptr,          \
                                              int order);                           \
    void __tsan_atomic##bits##_store(_Atomic uint##bits##_t *ptr,                   \
                                     uint##bits##_t value, int order);              \
    uint##bits##_t __tsan_atomic##bits##_load(_Atomic uint##bits##_t *ptr,          \
                                              int order)                            \
    {                                                                               \
        (void)order;                                                                \
        touch((uintptr_t)ptr, sizeof *ptr, false);                                  \
        return atomic_load(ptr);                                                    \
    }                                                                               \
    void __tsan_atomic##bits##_store(_Atomic uint##bits##_t *ptr,                   \
                                     uint##bits##_t value, int order)               \
    {                                                                               \
        (void)order;                                                                \
        touch((uintptr_t)ptr, sizeof *ptr, true);                                   \
        atomic_store(ptr, value);                                                   \
    }                                                                               \
    EXCHANGE(bits, exchange)                                                        \
    EXCHANGE(bits, fetch_add)                                                       \
    EXCHANGE(bits, fetch_sub)                                                       \
    EXCHANGE(bits, fetch_and)                                                       \
    EXCHANGE(bits, fetch_or)                                                        \
    COMPARE(bits, strong)                                                           \
    COMPARE(bits, weak)

ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)

void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_signal_fence(int order);

void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    atomic_thread_fence(memory_order_seq_cst);
}

void __tsan_atomic_signal_fence(int order)
{
    (void)order;
    atomic_signal_fence(memory_order_seq_cst);
}
