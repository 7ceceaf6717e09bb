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

struct Shared {
    Sums sums;
    Key exchanged[THREADS];
    Key groups[CANDIDATES];
    // A group's largest of each slice, or all of the groups that are looked at.
    Key kept[CANDIDATES * (TOP_SLICES > GROUP ? TOP_SLICES : GROUP)];
    int count;
};

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
    if (key != 0 && key >= least) shared.kept[count_up(&shared.count)] = key;
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

// One block per row.
DEVICE void top_row(const TopParams &p) {
    Shared &shared = shared_as<Shared>();
    const int thread = thread_index();
    const long long row = block_x(), first = row * p.slices;
    float most = -3.0e38f;
    for (int i = thread; i < p.slices; i += THREADS) most = fmaxf(most, p.sums[2 * (first + i)]);
    most = block_max(shared.sums, most);
    float sum = 0.0f;
    for (int i = thread; i < p.slices; i += THREADS)
        sum += p.sums[2 * (first + i) + 1] * expf(p.sums[2 * (first + i)] - most);
    sum = block_sum(shared.sums, sum);

    // The groups with the greatest keys.
    const Key *keys = p.keys + first * THREADS + thread;
    Key greatest = 0;
#pragma unroll 8
    for (int i = 0; i < p.slices; i++) {
        const Key key = keys[i * THREADS];
        greatest = key > greatest ? key : greatest;
    }
    const Key sorted = sort_threads(shared, greatest);
    if (thread == CANDIDATES - 1) shared.exchanged[0] = sorted;
    if (thread == 0) shared.count = 0;
    sync_block();
    const Key least = shared.exchanged[0];
#pragma unroll 8
    for (int i = 0; i < p.slices; i++) keep(shared, keys[i * THREADS], least);
    sync_block();
    sort_kept(shared);
    if (thread < CANDIDATES) shared.groups[thread] = shared.kept[thread];
    if (thread == 0) shared.count = 0;
    sync_block();

    // All keys of these groups that are as great.
    const Key enough = shared.groups[CANDIDATES - 1];
    const float *logits = p.logits + row * p.width;
#pragma unroll
    for (int i = 0; i < CANDIDATES * GROUP / THREADS; i++) {
        const int place = thread + i * THREADS;
        const Key group = shared.groups[place / GROUP];
        if (group == 0) continue;
        const int leader = (int)(id_of(group) - p.first);
        const int column =
            leader / TOP_SLICE * TOP_SLICE + leader % THREADS + place % GROUP * THREADS;
        if (column < p.columns) keep(shared, key_of(logits[column], p.first + column), enough);
    }
    sync_block();
    sort_kept(shared);
    float *out = p.out + row * (2 * CANDIDATES + 1);
    if (thread < CANDIDATES) {
        const Key key = shared.kept[thread];
        out[thread] = key == 0 ? minus_infinity() : logit_of(key);
        out[CANDIDATES + thread] = key == 0 ? 0.0f : (float)id_of(key);
    }
    if (thread == 0) out[2 * CANDIDATES] = logf(sum);
}

KERNEL(top_slices, THREADS, 3, sizeof(Sums), TopParams, top_slice)
KERNEL(top_rows, THREADS, 2, sizeof(Shared), TopParams, top_row)
