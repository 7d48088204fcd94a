/* shim.cc - puts a case in C on Google Benchmark, see shim.h. */
#include "shim.h"

#include <atomic>
#include <cstdio>
#include <string>

#include <benchmark/benchmark.h>

namespace {

std::atomic<bool> failed{false};

void fail(benchmark::State &state, const char *what)
{
    failed = true;
    state.SkipWithError(what);
}

struct counts {
    shim_counter values[SHIM_COUNTERS_MAX];
    size_t number = 0;

    void take(const shim_case *what)
    {
        if (what->count != nullptr)
            number = what->count(what->self, values);
    }
};

/* `opened` is what thread 0 has kept from an earlier attempt, or null. */
void measure(benchmark::State &state, const shim_case *what, void **kept)
{
    void *opened = *kept;
    counts before, after;
    bool good = true;

    if (opened == nullptr)
        opened = what->open(what->self, state.thread_index());
    if (opened == nullptr) {
        fail(state, "the case does not open");
        return;
    }
    if (state.thread_index() == 0)
        before.take(what);
    const auto batch = static_cast<benchmark::IterationCount>(what->batch);
    while (good && state.KeepRunningBatch(batch))
        good = what->run(what->self, opened, what->batch);
    if (!good)
        fail(state, "the work has failed");
    state.SetItemsProcessed(state.iterations() / what->crew);

    if (state.thread_index() == 0) {
        after.take(what);
        const double units = static_cast<double>(state.iterations())
                             * state.threads() / what->crew;
        for (size_t i = 0; i < after.number; i++)
            state.counters[after.values[i].name] =
                (after.values[i].value - before.values[i].value) / units;
    }
    if (what->threads == 1)
        *kept = opened;
    else
        what->close(what->self, opened);
}

} // namespace

bool shim_measure(const shim_case *what, double seconds, const char *const context[][2],
                  size_t context_count)
{
    std::string program = "bench", time = "--benchmark_min_time=" +
                                          std::to_string(seconds);
    std::string format = "--benchmark_format=json";
    char *arguments[] = { &program[0], &time[0], &format[0], nullptr };
    int count = 3;
    void *kept = nullptr;

    for (size_t i = 0; i < context_count; i++)
        benchmark::AddCustomContext(context[i][0], context[i][1]);
    benchmark::Initialize(&count, arguments);
    benchmark::RegisterBenchmark(what->name,
                                 [&](benchmark::State &state) {
                                     if (what->threads == 1) {
                                         measure(state, what, &kept);
                                     } else {
                                         void *none = nullptr;
                                         measure(state, what, &none);
                                     }
                                 })
        ->Threads(what->threads)
        ->UseRealTime();
    const bool ran = benchmark::RunSpecifiedBenchmarks() == 1;
    benchmark::Shutdown();
    if (kept != nullptr)
        what->close(what->self, kept);
    return ran && !failed;
}
