/* gpu_check_torch.cc - runs a replay through PyTorch's caching allocator as PyTorch
 * calls it, on one stream; see gpu_check_peers.py, which compiles it. */
#include <chrono>
#include <cstdint>
#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>

/* An event at least 0 allocates the block of that index, one below frees block
 * -1 - event. Returns how many ns all of them took; what is left is freed after. */
extern "C" double gpu_check_torch(const int64_t *sizes, const int64_t *events,
                                  int64_t block_count, int64_t event_count)
{
    namespace allocator = c10::cuda::CUDACachingAllocator;
    std::vector<void *> blocks(static_cast<size_t>(block_count), nullptr);
    cudaStream_t stream = nullptr;

    auto begun = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < event_count; i++) {
        int64_t event = events[i];
        if (event >= 0) {
            blocks[event] = allocator::raw_alloc_with_stream(
                static_cast<size_t>(sizes[event]), stream);
        } else {
            allocator::raw_delete(blocks[-1 - event]);
            blocks[-1 - event] = nullptr;
        }
    }
    auto ended = std::chrono::steady_clock::now();
    for (void *block : blocks) {
        if (block != nullptr)
            allocator::raw_delete(block);
    }
    return std::chrono::duration<double, std::nano>(ended - begun).count();
}
