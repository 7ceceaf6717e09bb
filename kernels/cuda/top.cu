// The largest logits of a row. Every thread finds the largest of its group of columns; a group that
// holds one of the first CANDIDATES has a largest that is among the first CANDIDATES of these. So few
// groups are looked at again, and no more than a few hundred logits are ever sorted.
#include "device.cuh"
#include "keys.cuh"
#include "params.h"

constexpr int THREADS = TOP_GROUPS, WARPS = THREADS / 32;
// Columns of a group: every THREADS-th of a slice.
constexpr int GROUP = TOP_SLICE / THREADS;

struct Sums {
    float warps[WARPS];
};

// Leaders that are looked at as they come; more are sorted first.
constexpr int FEW = 128;
constexpr int CAPACITY = 4096;
// Loads of a thread on their way.
constexpr int TOGETHER = 16;

struct Shared {
    unsigned heads[THREADS];  // of keys, each another one
    Key least[WARPS];
    Key exchanged[THREADS];
    Key groups[FEW];
    // A group's largest of each slice, or all of the groups that are looked at.
    Key kept[CAPACITY];
    int count;  // of all that are to be kept
};
static_assert(CANDIDATES * TOP_SLICES <= CAPACITY && FEW * GROUP <= CAPACITY, "all can be kept");

DEVICE float block_max(Sums &sums, float x) {
    x = warp_max(x);
    if (thread_index() % 32 == 0) sums.warps[thread_index() / 32] = x;
    sync_block();
    float most = sums.warps[0];
    for (int i = 1; i < WARPS; i++) most = fmaxf(most, sums.warps[i]);
    sync_block();
    return most;
}

DEVICE float block_sum(Sums &sums, float x) {
    x = warp_sum(x);
    if (thread_index() % 32 == 0) sums.warps[thread_index() / 32] = x;
    sync_block();
    float sum = 0.0f;
    for (int i = 0; i < WARPS; i++) sum += sums.warps[i];
    sync_block();
    return sum;
}

// The greatest first, a key for each thread: within a warp by exchanges of registers.
DEVICE Key sort_threads(Shared &shared, Key key) {
    const int thread = thread_index();
    for (int size = 2; size <= THREADS; size *= 2) {
        for (int step = size / 2; step > 0; step /= 2) {
            Key other;
            if (step >= 32) {
                shared.exchanged[thread] = key;
                sync_block();
                other = shared.exchanged[thread ^ step];
                sync_block();
            } else {
                other = shuffle_xor(key, step);
            }
            const bool greater = ((thread & step) == 0) == ((thread & size) == 0);
            key = (key > other) == greater ? key : other;
        }
    }
    return key;
}

// The greatest first; `n` is a power of two.
DEVICE void sort_shared(Key *keys, int n) {
    for (int size = 2; size <= n; size *= 2) {
        for (int step = size / 2; step > 0; step /= 2) {
            for (int i = thread_index(); i < n / 2; i += THREADS) {
                const int low = 2 * i - (i & (step - 1)), high = low + step;
                const Key a = keys[low], b = keys[high];
                if ((a < b) == ((low & size) == 0)) {
                    keys[low] = b;
                    keys[high] = a;
                }
            }
            sync_block();
        }
    }
}

// Sorts the `count` keys in `kept`, of which at least CANDIDATES places count.
DEVICE void sort_kept(Shared &shared) {
    const int thread = thread_index(), count = shared.count;
    if (count <= THREADS) {
        const Key key = sort_threads(shared, thread < count ? shared.kept[thread] : 0);
        sync_block();
        shared.kept[thread] = key;
        sync_block();
        return;
    }
    int n = THREADS;
    while (n < count) n *= 2;
    for (int i = count + thread; i < n; i += THREADS) shared.kept[i] = 0;
    sync_block();
    sort_shared(shared.kept, n);
}

DEVICE void keep(Shared &shared, Key key, Key least) {
    if (key == 0 || key < least) return;
    const int place = count_up(&shared.count);
    if (place < CAPACITY) shared.kept[place] = key;
}

// One block per slice and row.
DEVICE void top_slice(const TopParams &p) {
    Sums &sums = shared_as<Sums>();
    const int thread = thread_index(), first = block_x() * TOP_SLICE + thread;
    const float *logits = p.logits + (long long)block_y() * p.width;
    float value[GROUP];
    float most = -3.0e38f;
    Key greatest = 0;
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        const int column = first + i * THREADS;
        value[i] = column < p.columns ? logits[column] : minus_infinity();
        most = fmaxf(most, value[i]);
        const Key key = column < p.columns ? key_of(value[i], p.first + column) : 0;
        greatest = key > greatest ? key : greatest;
    }
    const long long slice = (long long)block_y() * grid_x() + block_x();
    p.keys[slice * THREADS + thread] = greatest;
    most = block_max(sums, most);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < GROUP; i++) sum += expf(value[i] - most);
    sum = block_sum(sums, sum);
    if (thread == 0) {
        p.sums[2 * slice] = most;
        p.sums[2 * slice + 1] = sum;
    }
}

// Log of the sum of exponentials of the row, less its greatest logit, by one warp.
DEVICE float log_sum(const float *sums, int slices) {
    const int lane = thread_index() % 32;
    float most = -3.0e38f, sum = 0.0f;
    for (int i = lane; i < slices; i += 32) most = fmaxf(most, sums[2 * i]);
    most = warp_max(most);
    for (int i = lane; i < slices; i += 32) sum += sums[2 * i + 1] * expf(sums[2 * i] - most);
    return logf(warp_sum(sum));
}

// A key that at least CANDIDATES of the threads' keys reach, and few more: the least of those whose upper 24
// bits are the greatest.
DEVICE Key bound_of(Shared &shared, Key key) {
    const int thread = thread_index();
    const unsigned mine = (unsigned)(key >> 32) / THREADS * THREADS + (THREADS - 1 - thread);
    shared.heads[thread] = mine;
    sync_block();
    int greater = 0;
#pragma unroll 8
    for (int i = 0; i < THREADS / 4; i++) {
        const Bytes16 four = load<Bytes16>(shared.heads, i);
#pragma unroll
        for (int c = 0; c < 4; c++) greater += four.word[c] > mine;
    }
    Key least = greater < CANDIDATES ? key : ~0ull;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        const Key other = shuffle_xor(least, lanes);
        least = other < least ? other : least;
    }
    if (thread % 32 == 0) shared.least[thread / 32] = least;
    sync_block();
#pragma unroll
    for (int i = 0; i < WARPS; i++) least = shared.least[i] < least ? shared.least[i] : least;
    return least;
}

// The greatest key that CANDIDATES of the threads' keys reach.
DEVICE Key exact_bound_of(Shared &shared, Key key) {
    const Key sorted = sort_threads(shared, key);
    if (thread_index() == CANDIDATES - 1) shared.least[0] = sorted;
    if (thread_index() == 0) shared.count = 0;
    sync_block();
    return shared.least[0];
}

// The first CANDIDATES of the `count` keys in `kept`, into `groups`.
DEVICE void rank_kept(Shared &shared) {
    const int thread = thread_index(), count = shared.count;
    if (count > THREADS) {
        sort_kept(shared);
        if (thread < CANDIDATES) shared.groups[thread] = shared.kept[thread];
        sync_block();
        return;
    }
    if (thread < CANDIDATES) shared.groups[thread] = 0;
    sync_block();
    if (thread < count) {
        const Key key = shared.kept[thread];
        int rank = 0;
#pragma unroll 8
        for (int i = 0; i < count; i++) rank += shared.kept[i] > key;
        if (rank < CANDIDATES) shared.groups[rank] = key;
    }
    sync_block();
}

DEVICE void keep_leaders(Shared &shared, const Key *keys, int slices, Key least) {
#pragma unroll 1
    for (int from = 0; from < slices; from += TOGETHER) {
        Key some[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) some[i] = from + i < slices ? keys[(from + i) * THREADS] : 0;
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) keep(shared, some[i], least);
    }
}

// All keys of groups that are as great as `least`.
DEVICE void keep_members(Shared &shared, const TopParams &p, const float *logits, int groups, Key least) {
#pragma unroll 1
    for (int from = thread_index(); from < groups * GROUP; from += THREADS * TOGETHER) {
        int column[TOGETHER];
        float value[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int place = from + i * THREADS;
            const Key group = place < groups * GROUP ? shared.groups[place / GROUP] : 0;
            const int leader = (int)(id_of(group) - p.first);
            column[i] = leader / TOP_SLICE * TOP_SLICE + leader % THREADS + place % GROUP * THREADS;
            if (group == 0 || column[i] >= p.columns) column[i] = -1;
            value[i] = column[i] < 0 ? 0.0f : logits[column[i]];
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            if (column[i] >= 0) keep(shared, key_of(value[i], p.first + column[i]), least);
    }
}

// One block per row.
DEVICE void top_row(const TopParams &p) {
    Shared &shared = shared_as<Shared>();
    const int thread = thread_index();
    const long long row = block_x(), first = row * p.slices;
    // The groups with the greatest keys.
    const Key *keys = p.keys + first * THREADS + thread;
    Key greatest = 0;
#pragma unroll 1
    for (int from = 0; from < p.slices; from += TOGETHER) {
        Key some[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) some[i] = from + i < p.slices ? keys[(from + i) * THREADS] : 0;
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) greatest = some[i] > greatest ? some[i] : greatest;
    }
    if (thread == 0) shared.count = 0;
    Key least = bound_of(shared, greatest);
    keep_leaders(shared, keys, p.slices, least);
    sync_block();
    if (shared.count > CAPACITY) {
        sync_block();
        least = exact_bound_of(shared, greatest);
        keep_leaders(shared, keys, p.slices, least);
        sync_block();
    }
    // Mostly as many groups as there have to be, and few more.
    int groups = shared.count;
    Key enough = least;
    if (groups > FEW) {
        rank_kept(shared);
        groups = CANDIDATES;
        enough = shared.groups[CANDIDATES - 1];
    } else {
        if (thread < groups) shared.groups[thread] = shared.kept[thread];
    }
    sync_block();
    if (thread == 0) shared.count = 0;
    sync_block();

    keep_members(shared, p, p.logits + row * p.width, groups, enough);
    sync_block();
    float *out = p.out + row * (2 * CANDIDATES + 1);
    // By a warp that mostly has nothing to rank.
    if (thread >= THREADS - 32) {
        const float sum = log_sum(p.sums + 2 * first, p.slices);
        if (thread == THREADS - 32) out[2 * CANDIDATES] = sum;
    }
    rank_kept(shared);
    if (thread < CANDIDATES) {
        const Key key = shared.groups[thread];
        out[thread] = key == 0 ? minus_infinity() : logit_of(key);
        out[CANDIDATES + thread] = key == 0 ? 0.0f : (float)id_of(key);
    }
}

KERNEL(top_slices, THREADS, 3, sizeof(Sums), TopParams, top_slice)
KERNEL(top_rows, THREADS, 2, sizeof(Shared), TopParams, top_row)
