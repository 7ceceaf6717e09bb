// Runs the kernels' blocks one after another, the threads of a block as fibers. Each thread of the
// process is a device of its own, so that devices can wait for each other.
#define VOLLEY_EMULATE
#include "device.hpp"

#include <algorithm>
#include <csetjmp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sched.h>
#include <ucontext.h>

namespace emulate {

thread_local Place place;

std::vector<Kernel> &kernels() {
    static std::vector<Kernel> all;
    return all;
}

namespace {

constexpr unsigned MOST_THREADS = 1024, STACK_BYTES = 64 * 1024, SLOT_BYTES = 32;
constexpr unsigned SHARED_BYTES = 228 * 1024;

struct Copy {
    void *to;
    const void *from;
    bool valid;
};

struct Fiber {
    jmp_buf here;
    ucontext_t start;
    bool begun, done;
    bool waited;                               // for the kernels ahead
    std::vector<Copy> open;                    // not yet committed
    std::vector<std::vector<Copy>> committed;  // oldest first
    std::vector<std::function<void()>> open_products;
    std::vector<std::vector<std::function<void()>>> products;  // oldest first
};

// Copies of a thread that arrive at a barrier.
struct Arriving {
    const void *barrier;
    std::vector<Copy> copies;
};

// Threads that wait for each other; `turn` counts the times all came.
struct Barrier {
    unsigned arrived, turn, threads;
};

struct Block {
    Fiber fibers[MOST_THREADS];
    Barrier all;
    Barrier warps[MOST_THREADS / 32];
    Barrier warpgroups[MOST_THREADS / 128];
    std::vector<Arriving> arriving;
    // Two sets of slots: a fast lane may be one exchange ahead of a slow one.
    alignas(16) unsigned char slots[MOST_THREADS / 32][2][32 * SLOT_BYTES];
    unsigned exchanges[MOST_THREADS];
    unsigned threads, living;
    bool backwards;
    const Kernel *kernel;
    const void *params;
    jmp_buf scheduler;
};

// Left as it comes, so that unused stacks cost no memory.
thread_local std::unique_ptr<unsigned char[]> stacks;
alignas(1024) thread_local unsigned char shared_memory[SHARED_BYTES];
thread_local Block block;

}  // namespace

void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", block.kernel->name, what);
    abort();
}

namespace {

void enter() {
    block.kernel->run(block.params);
    Fiber &me = block.fibers[place.thread];
    if (!me.waited) fail("a thread did not wait for the kernels ahead");
    me.done = true;
    block.living--;
    // A thread that has returned no longer takes part in the barrier of the block.
    block.all.threads--;
    if (block.all.threads > 0 && block.all.arrived == block.all.threads) {
        block.all.arrived = 0;
        block.all.turn++;
    }
    _longjmp(block.scheduler, 1);
}

// Goes on with the next fiber; forwards or backwards, so that a missing barrier shows.
void yield() {
    const unsigned mine = place.thread;
    if (_setjmp(block.fibers[mine].here) == 0) _longjmp(block.scheduler, 1);
    place.thread = mine;
}

void wait_at(Barrier &barrier) {
    const unsigned turn = barrier.turn;
    if (++barrier.arrived == barrier.threads) {
        barrier.arrived = 0;
        barrier.turn++;
        return;
    }
    while (barrier.turn == turn) yield();
}

// Runs a fiber until it waits or returns.
void resume(unsigned thread) {
    Fiber &fiber = block.fibers[thread];
    if (fiber.done || _setjmp(block.scheduler) != 0) return;
    place.thread = thread;
    if (fiber.begun) _longjmp(fiber.here, 1);
    fiber.begun = true;
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = &stacks[thread * STACK_BYTES];
    fiber.start.uc_stack.ss_size = STACK_BYTES;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, enter, 0);
    setcontext(&fiber.start);
}

void run_block() {
    for (unsigned i = 0; i < block.threads; i++) {
        Fiber &fiber = block.fibers[i];
        fiber.begun = fiber.done = fiber.waited = false;
        fiber.open.clear();
        fiber.committed.clear();
        fiber.open_products.clear();
        fiber.products.clear();
        block.exchanges[i] = 0;
    }
    block.living = block.threads;
    block.all = {0, 0, block.threads};
    for (unsigned warp = 0; warp < block.threads / 32; warp++) block.warps[warp] = {0, 0, 32};
    for (Barrier &warpgroup : block.warpgroups) warpgroup = {0, 0, 128};
    block.arriving.clear();
    memset(shared_memory, 0xff, sizeof shared_memory);  // NaN: what is read must have been written
    place.shared = shared_memory;
    for (unsigned at = 0; block.living > 0; at = at + 1 == block.threads ? 0 : at + 1)
        resume(block.backwards ? block.threads - 1 - at : at);
}

}  // namespace

void relax() {
    sched_yield();
    yield();
}

long long nanoseconds() {
    using namespace std::chrono;
    return duration_cast<std::chrono::nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

void sync_block() { wait_at(block.all); }
void sync_warp() { wait_at(block.warps[place.thread / 32]); }

const unsigned char *exchange(const void *mine, unsigned bytes) {
    const unsigned thread = place.thread;
    unsigned char *slots = block.slots[thread / 32][block.exchanges[thread]++ % 2];
    memcpy(slots + thread % 32 * bytes, mine, bytes);
    sync_warp();
    return slots;
}

void wait_for_earlier() { block.fibers[place.thread].waited = true; }

void copy(void *to, const void *from, bool valid) {
    block.fibers[place.thread].open.push_back({to, from, valid});
}

void commit() {
    Fiber &me = block.fibers[place.thread];
    me.committed.push_back(std::move(me.open));
    me.open.clear();
}

namespace {

void land(const std::vector<Copy> &copies) {
    for (const Copy &copy : copies) {
        if (copy.valid)
            memcpy(copy.to, copy.from, 16);
        else
            memset(copy.to, 0, 16);
    }
}

}  // namespace

void wait(unsigned pending) {
    std::vector<std::vector<Copy>> &groups = block.fibers[place.thread].committed;
    while (groups.size() > pending) {
        land(groups.front());
        groups.erase(groups.begin());
    }
}

void sync_warpgroup() { wait_at(block.warpgroups[place.thread / 128]); }

void arrive(short count, short &missing, int &round) {
    if (missing <= 0) fail("more arrivals than are expected");
    if (--missing > 0) return;
    missing = count;
    round++;
}

void copies_arrive(const void *barrier) {
    std::vector<Copy> &open = block.fibers[place.thread].open;
    block.arriving.push_back({barrier, std::move(open)});
    open.clear();
}

void land_copies(const void *barrier, const std::function<void()> &arrived) {
    const auto here = [&](const Arriving &some) { return some.barrier == barrier; };
    std::vector<Arriving> &all = block.arriving;
    for (auto at = all.begin(); (at = std::find_if(at, all.end(), here)) != all.end();) {
        land(at->copies);
        at = all.erase(at);
        arrived();
    }
}

void begin_product(std::function<void()> product) {
    block.fibers[place.thread].open_products.push_back(std::move(product));
}

void commit_products() {
    Fiber &me = block.fibers[place.thread];
    me.products.push_back(std::move(me.open_products));
    me.open_products.clear();
}

void wait_for_products(unsigned pending) {
    auto &groups = block.fibers[place.thread].products;
    while (groups.size() > pending) {
        for (const auto &product : groups.front()) product();
        groups.erase(groups.begin());
    }
}

}  // namespace emulate

// Answers false when there is no such kernel.
extern "C" bool volley_emulate_info(const char *name, KernelInfo *info) {
    for (const emulate::Kernel &kernel : emulate::kernels()) {
        if (strcmp(kernel.name, name) == 0) {
            *info = kernel.info;
            return true;
        }
    }
    return false;
}

extern "C" bool volley_emulate_launch(const char *name, unsigned x, unsigned y, unsigned z,
                                      const void *params) {
    using namespace emulate;
    if (!stacks) stacks.reset(new unsigned char[MOST_THREADS * STACK_BYTES]);
    for (const Kernel &kernel : kernels()) {
        if (strcmp(kernel.name, name) != 0) continue;
        block.kernel = &kernel;
        block.params = params;
        block.threads = kernel.info.threads;
        place.grid = {x, y, z};
        for (unsigned k = 0; k < z; k++)
            for (unsigned j = 0; j < y; j++)
                for (unsigned i = 0; i < x; i++) {
                    place.block = {i, j, k};
                    run_block();
                    block.backwards = !block.backwards;
                }
        return true;
    }
    return false;
}

#include "../gdn_chunk.cuh"
#include "../gdn_rows.cuh"
#include "../kept.cuh"
#include "../keys.cuh"
#include "../noise.cuh"
#include "../sight.cuh"
#include "../triangle.cuh"
#include "../warpgroup.cuh"

namespace attention {
#include "../attention.cu"
}
namespace attention_wide {
#include "../attention_wide.cu"
}
namespace attention_few {
#include "../attention_few.cu"
}
namespace attention_merge {
#include "../attention_merge.cu"
}
namespace attention_prepare {
#include "../attention_prepare.cu"
}
namespace cut {
#include "../cut.cu"
}
namespace draw {
#include "../draw.cu"
}
namespace edit {
#include "../edit.cu"
}
namespace exchange {
#include "../exchange.cu"
}
namespace gdn_chunk {
#include "../gdn_chunk.cu"
}
namespace gdn_commit {
#include "../gdn_commit.cu"
}
namespace gdn_conv {
#include "../gdn_conv.cu"
}
namespace gdn_prefill {
#include "../gdn_prefill.cu"
}
namespace gdn_verify {
#include "../gdn_verify.cu"
}
namespace gdn_verify_many {
#include "../gdn_verify_many.cu"
}
namespace grow {
#include "../grow.cu"
}
namespace linear {
#include "../linear.cu"
}
namespace norm {
#include "../norm.cu"
}
namespace race {
#include "../race.cu"
}
namespace row_moves {
#include "../rows.cu"
}
namespace swiglu {
#include "../swiglu.cu"
}
namespace top {
#include "../top.cu"
}
namespace walk {
#include "../walk.cu"
}
