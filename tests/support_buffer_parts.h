/* support_buffer_parts.h - what the two files of support_buffer_player.h share. */
#ifndef WEIR_TESTS_SUPPORT_BUFFER_PARTS_H
#define WEIR_TESTS_SUPPORT_BUFFER_PARTS_H

#include "support_buffer_player.h"

uint64_t player_draw(player *self, uint64_t n);
bool player_toss(player *self);
player_storage *player_storage_take(player *self, bool is_block, size_t bytes);
size_t player_out_bytes(const player *self);
size_t player_deferred(const player *self);
size_t player_cells_of(const player_slot *slot);
bool player_is_alone(const player_slot *slot);
bool player_could_be_alone(const player_slot *slot);
void player_holder_leaves(player_slot *slot);
int player_any_stream(player *self);
weir_stream player_stream_of(const player *self, int stream);
player_slot *player_any_slot(player *self);
player_slot *player_slot_with_storage(player *self);
void player_slot_reset(player_slot *slot);
bool player_is_done(player_slot *slot, weir_buffer before, bool may, bool must_do,
                    weir_status refusal, weir_status status);
size_t player_any_bytes(player *self);
bool player_do_init(player *self);
bool player_do_allocate(player *self);
bool player_do_adopt(player *self);
bool player_do_adopt_block(player *self);
void player_read_window(player *self, player_slot *slot, int stream);
void player_write_window(player *self, player_slot *slot, int stream);
bool player_do_view(player *self);
bool player_do_share(player *self);
bool player_do_slice(player *self);
void player_weak_end(player_weak *weak);
bool player_do_weaken(player *self);
bool player_do_upgrade(player *self);
bool player_do_forget(player *self);

#endif
