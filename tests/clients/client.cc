/* client.cc - a C++17 program as a user of an installed Weir writes it: the C calls in
 * a few lines of owners and exceptions. Answers 0 if all went as promised. */
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "weir/weir.h"

namespace {

void must(weir_status status)
{
    if (status != WEIR_OK)
        throw std::runtime_error(std::string(weir_status_string(status)) + ": " +
                                 weir_last_error().message);
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
    must(weir_device_open(name, &options, &device));
    return device_owner(device);
}

resource_owner open_resource(weir_device *device, const char *spec)
{
    weir_resource *mr = nullptr;
    must(weir_resource_open(device, spec, &mr));
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
    must(weir_allocate(mr, WEIR_STREAM_PER_THREAD, bytes, alignof(int), &block));
    must(weir_copy(device, WEIR_STREAM_PER_THREAD, block, numbers.data(), bytes));

    const weir_emulated_range range = { block, bytes, WEIR_EMULATED_READ_WRITE };
    must(weir_emulated_launch(device, WEIR_STREAM_PER_THREAD, doubles, &count, &range,
                              1));
    std::vector<int> seen(count);
    must(weir_copy_sync(device, WEIR_STREAM_PER_THREAD, seen.data(), block, bytes));
    if (seen != std::vector<int>(count, 42))
        throw std::runtime_error("the device did not double");
    if (!weir_deallocate(mr, WEIR_STREAM_PER_THREAD, block, bytes, alignof(int)))
        throw std::runtime_error("not taken back");
}

} // namespace

int main()
{
    try {
        device_owner device = open_device("emulated:1");
        resource_owner mr = open_resource(device.get(), "statistics/pool/device");
        use_memory(device.get(), mr.get());
        if (weir_emulated_findings(device.get()) != 0)
            throw std::runtime_error("the ledger found something");
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    std::printf("weir %s from C++\n", weir_version_string());
    return 0;
}
