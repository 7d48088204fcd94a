/* client.cc - a C++17 program as a user of an installed Weir writes it: the C calls in
 * a few lines of owners, and buffers in theirs. Answers 0 if all went as promised. */
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "weir/buffer.hpp"
#include "weir/weir.h"

namespace {

using weir::buffer;
using weir::check;

static_assert(!std::is_copy_constructible_v<buffer> &&
              !std::is_copy_assignable_v<buffer>);
static_assert(std::is_nothrow_move_constructible_v<buffer> &&
              std::is_nothrow_move_assignable_v<buffer> &&
              std::is_nothrow_swappable_v<buffer> &&
              std::is_nothrow_default_constructible_v<buffer>);
static_assert(sizeof(buffer) == sizeof(weir_buffer));

void must(bool holds, const char *words)
{
    if (!holds)
        throw std::runtime_error(words);
}

struct give_back {
    void operator()(weir_device *device) const { weir_device_unref(device); }
    void operator()(weir_resource *mr) const { weir_resource_unref(mr); }
};
using device_owner = std::unique_ptr<weir_device, give_back>;
using resource_owner = std::unique_ptr<weir_resource, give_back>;

device_owner open_device(const char *name)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.seed = 1;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    weir_device *device = nullptr;
    check(weir_device_open(name, &options, &device));
    return device_owner(device);
}

resource_owner open_resource(weir_device *device, const char *spec)
{
    weir_resource *mr = nullptr;
    check(weir_resource_open(device, spec, &mr));
    return resource_owner(mr);
}

void doubles(void *count, void *const views[])
{
    int *numbers = static_cast<int *>(views[0]);
    for (std::size_t i = 0; i < *static_cast<std::size_t *>(count); i++)
        numbers[i] *= 2;
}

/* Copies numbers in, lets the device double them, and copies them out. */
void use_memory(weir_device *device, weir_resource *mr)
{
    std::vector<int> numbers(1000, 21);
    std::size_t count = numbers.size();
    const std::size_t bytes = count * sizeof(int);
    void *block = nullptr;
    check(weir_allocate(mr, WEIR_STREAM_PER_THREAD, bytes, alignof(int), &block));
    check(weir_copy(device, WEIR_STREAM_PER_THREAD, block, numbers.data(), bytes));

    const weir_emulated_range range = { block, bytes, WEIR_EMULATED_READ_WRITE };
    check(weir_emulated_launch(device, WEIR_STREAM_PER_THREAD, doubles, &count, &range,
                               1));
    std::vector<int> seen(count);
    check(weir_copy_sync(device, WEIR_STREAM_PER_THREAD, seen.data(), block, bytes));
    must(seen == std::vector<int>(count, 42), "the device did not double");
    must(weir_deallocate(mr, WEIR_STREAM_PER_THREAD, block, bytes, alignof(int)),
         "not taken back");
}

std::size_t out_bytes(weir_resource *mr)
{
    weir_resource_statistics it{};
    it.struct_size = sizeof it;
    check(weir_resource_get_statistics(mr, &it));
    return it.out_bytes;
}

template <typename Call>
weir_status status_of(Call call)
{
    try {
        call();
    } catch (const weir::error &error) {
        must(*error.what() != '\0', "an error without a word");
        return error.status();
    }
    return WEIR_OK;
}

/* Moves leave the one behind empty; who holds the bytes was asked for by name; the last
 * gives them back. */
void own_buffers(weir_resource *mr)
{
    buffer x = buffer::allocate(mr, nullptr, 1000), y = buffer::init(mr, nullptr);
    void *data = x.data();
    y = std::move(x);
    must(x.data() == nullptr && x.get()->resource == nullptr, "moved from");
    must(y.data() == data && y.size() == 1000 && y.properties().is_alone, "moved");
    swap(x, y);
    buffer &same = x;
    x = std::move(same);
    must(x.data() == data && y.data() == nullptr, "swapped, and moved to itself");

    weir::weak_buffer weak = x.weaken();
    buffer part = x.slice(256, 100), all = x.share();
    must(part.data() == static_cast<char *>(data) + 256, "a slice");
    must(status_of([&] { x.resize(2000, nullptr); }) == WEIR_NOT_OWNED, "shared");
    must(status_of([&] { (void)x.slice(1000, 1); }) == WEIR_INVALID_ARGUMENT, "beyond");
    x.reset();
    part.reset();
    must(weak.upgrade()->data() == data, "a weak holder upgraded");
    all.resize(5000, nullptr);
    must(all.data() != data && !weak.upgrade().has_value(), "the bytes moved");

    buffer twin = all.copy(nullptr, nullptr);
    all.use(WEIR_STREAM_PER_THREAD, WEIR_READ);
    all.wait(nullptr, WEIR_WRITE);
    twin.reserve(9000, nullptr);
    twin.shrink(nullptr);
    must(twin.capacity() >= 5000 && twin.capacity() < 9000, "shrunk");
    twin.set_stream(WEIR_STREAM_PER_THREAD);
    twin.wait_sync(WEIR_WRITE);

    weir_released given = all.release();
    must(all.data() == nullptr && all.resource() == mr, "released");
    buffer back = buffer::adopt_block(given.resource, given.stream, given.ptr,
                                      given.bytes, given.alignment);
    weir_resource_unref(given.resource);
    weir_buffer plain = back.detach();
    must(back.data() == nullptr, "detached");
    buffer again = buffer::take(plain);
    must(again.size() == given.bytes && plain.data == nullptr, "taken");
}

/* Any callable is a deleter, once; where adopting fails it was not called, and is
 * destroyed. */
void adopt_arrays(weir_device *device, weir_resource *mr)
{
    auto counter = std::make_shared<int>(0);
    auto numbers = std::make_unique<std::vector<int>>(100, 5);
    weir_foreign foreign = WEIR_FOREIGN_INIT;
    foreign.ptr = numbers->data();
    foreign.bytes = numbers->size() * sizeof(int);
    foreign.kind = WEIR_MEMORY_HOST;
    foreign.ignores_stream = true;
    auto deleter = [counter](void *, std::size_t, weir_stream) { ++*counter; };
    weir_foreign none = foreign;
    none.bytes = 0;
    must(status_of([&] { (void)buffer::adopt(device, nullptr, none, deleter); }) ==
             WEIR_INVALID_ARGUMENT && *counter == 0 && counter.use_count() == 2,
         "a deleter after a failure");
    {
        buffer owner = buffer::adopt(
            device, nullptr, foreign,
            [counter, kept = std::move(numbers)](void *ptr, std::size_t, weir_stream) {
                *counter += ptr == kept->data() ? 1 : 100;
            });
        must(*counter == 0 && counter.use_count() == 3, "a deleter kept");
    }
    check(weir_device_drain_sync(device));
    must(*counter == 1 && counter.use_count() == 2, "a deleter called once, and gone");

    int numbered[4] = { 1, 2, 3, 4 }, seen[2] = { 0, 0 };
    const std::int64_t shape[2] = { 2, 2 };
    weir_host_array array = WEIR_HOST_ARRAY_INIT;
    array.data = numbered;
    array.item_bytes = sizeof numbered[0];
    array.ndim = 2;
    array.shape = shape;
    buffer table = buffer::adopt_host(device, nullptr, array, deleter);
    table.to_host_sync(nullptr, sizeof seen, sizeof seen, seen);
    must(seen[0] == 3 && seen[1] == 4, "copied to the host");
    seen[0] = 9;
    weir_point point = table.from_host(nullptr, 0, sizeof seen[0], seen);
    check(weir_point_sync(device, point));
    must(numbered[0] == 9 && numbered[1] == 2, "copied from the host");
    table.reset();
    check(weir_device_drain_sync(device));
    must(*counter == 2, "an array's deleter called");

    int seven[4] = { 7, 7, 7, 7 };
    buffer window = buffer::view(seven, sizeof seven, nullptr);
    window.own(mr, nullptr);
    window.wait_sync(WEIR_READ); /* before the array goes */
    must(window.data() != seven && window.properties().owns, "a view owned");
}

} // namespace

int main()
{
    try {
        device_owner device = open_device("emulated:1");
        resource_owner mr = open_resource(device.get(), "statistics/pool/device");
        use_memory(device.get(), mr.get());
        own_buffers(mr.get());
        adopt_arrays(device.get(), mr.get());
        must(out_bytes(mr.get()) == 0, "something is out");
        must(weir_emulated_findings(device.get()) == 0, "the ledger found something");
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    std::printf("weir %s from C++\n", weir_version_string());
    return 0;
}
