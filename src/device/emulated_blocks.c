/* emulated_blocks.c - blocks by address, in a tree that chance keeps balanced.
 *
 * A treap: in address order from left to right, in order of a drawn priority from top
 * to bottom. Every node knows the largest free block of its subtree, so that the
 * lowest block with room is found on one way down. */
#include "device/emulated.h"

static size_t largest_of(const weir__block *block)
{
    return block == NULL ? 0 : block->largest_free;
}

static void block_refresh(weir__block *block)
{
    size_t largest = block->is_free ? block->bytes : 0;
    if (largest_of(block->left) > largest)
        largest = largest_of(block->left);
    if (largest_of(block->right) > largest)
        largest = largest_of(block->right);
    block->largest_free = largest;
}

weir__block *weir__block_make(uintptr_t ptr, size_t bytes, bool is_free)
{
    weir__block *block = weir__host_alloc(sizeof *block);
    if (block != NULL)
        *block = (weir__block){ .ptr = ptr, .bytes = bytes, .is_free = is_free };
    return block;
}

/* Everything in `root` below `ptr` goes to *left, the rest to *right. */
static void tree_split(weir__block *root, uintptr_t ptr, weir__block **left,
                       weir__block **right)
{
    if (root == NULL) {
        *left = *right = NULL;
        return;
    }
    if (root->ptr < ptr) {
        tree_split(root->right, ptr, &root->right, right);
        *left = root;
    } else {
        tree_split(root->left, ptr, left, &root->left);
        *right = root;
    }
    block_refresh(root);
}

/* All of `left` is below all of `right`. */
static weir__block *tree_merge(weir__block *left, weir__block *right)
{
    if (left == NULL || right == NULL)
        return left == NULL ? right : left;
    weir__block *root;
    if (left->priority > right->priority) {
        left->right = tree_merge(left->right, right);
        root = left;
    } else {
        right->left = tree_merge(left, right->left);
        root = right;
    }
    block_refresh(root);
    return root;
}

static weir__block *tree_insert(weir__block *root, weir__block *block)
{
    if (root == NULL || block->priority > root->priority) {
        tree_split(root, block->ptr, &block->left, &block->right);
        root = block;
    } else if (block->ptr < root->ptr) {
        root->left = tree_insert(root->left, block);
    } else {
        root->right = tree_insert(root->right, block);
    }
    block_refresh(root);
    return root;
}

static weir__block *tree_remove(weir__block *root, const weir__block *block)
{
    WEIR_CHECK(root != NULL, "a block is taken out that is not in");
    if (root == block)
        return tree_merge(root->left, root->right);
    if (block->ptr < root->ptr)
        root->left = tree_remove(root->left, block);
    else
        root->right = tree_remove(root->right, block);
    block_refresh(root);
    return root;
}

static void tree_refresh(weir__block *root, const weir__block *block)
{
    if (root != block)
        tree_refresh(block->ptr < root->ptr ? root->left : root->right, block);
    block_refresh(root);
}

static void tree_free(weir__block *root)
{
    if (root == NULL)
        return;
    tree_free(root->left);
    tree_free(root->right);
    weir__host_free(root);
}

void weir__blocks_insert(weir__blocks *self, weir__block *block)
{
    /* A linear congruence is chance enough here, and the same in every run. */
    self->random = self->random * 6364136223846793005u + 1442695040888963407u;
    block->priority = self->random >> 16;
    block->left = block->right = NULL;
    self->root = tree_insert(self->root, block);
}

void weir__blocks_remove(weir__blocks *self, weir__block *block)
{
    self->root = tree_remove(self->root, block);
}

void weir__blocks_refresh(weir__blocks *self, weir__block *block)
{
    tree_refresh(self->root, block);
}

weir__block *weir__blocks_at_or_below(weir__blocks *self, uintptr_t ptr)
{
    weir__block *best = NULL;
    for (weir__block *at = self->root; at != NULL;) {
        if (at->ptr <= ptr)
            best = at;
        at = at->ptr <= ptr ? at->right : at->left;
    }
    return best;
}

weir__block *weir__blocks_above(weir__blocks *self, uintptr_t ptr)
{
    weir__block *best = NULL;
    for (weir__block *at = self->root; at != NULL;) {
        if (at->ptr > ptr)
            best = at;
        at = at->ptr > ptr ? at->left : at->right;
    }
    return best;
}

weir__block *weir__blocks_first_fit(weir__blocks *self, size_t bytes)
{
    weir__block *at = self->root;
    if (largest_of(at) < bytes)
        return NULL;
    for (;;) {
        if (largest_of(at->left) >= bytes)
            at = at->left;
        else if (at->is_free && at->bytes >= bytes)
            return at;
        else
            at = at->right;
        WEIR_CHECK(at != NULL, "a block promised room below it and has none");
    }
}

static weir__block *fit_above(weir__block *at, uintptr_t ptr, size_t bytes)
{
    if (largest_of(at) < bytes)
        return NULL;
    weir__block *found = at->ptr > ptr ? fit_above(at->left, ptr, bytes) : NULL;
    if (found == NULL && at->ptr > ptr && at->is_free && at->bytes >= bytes)
        found = at;
    return found != NULL ? found : fit_above(at->right, ptr, bytes);
}

weir__block *weir__blocks_fit_above(weir__blocks *self, uintptr_t ptr, size_t bytes)
{
    return fit_above(self->root, ptr, bytes);
}

void weir__blocks_clear(weir__blocks *self)
{
    tree_free(self->root);
    self->root = NULL;
}
