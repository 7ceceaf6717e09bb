// The largest logits of a row, in two steps: of every slice of it, then of what the slices gave.
#include "device.cuh"
#include "keys.cuh"
#include "params.h"

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int SLICE_KEYS = TOP_SLICE / THREADS, MERGE_KEYS = TOP_SLICES * CANDIDATES / THREADS;
constexpr int MOST_KEYS = SLICE_KEYS > MERGE_KEYS ? SLICE_KEYS : MERGE_KEYS;

struct Shared {
    Key greatest[THREADS];
    Key kept[CANDIDATES * MOST_KEYS];
    float warps[WARPS];
    int count;
};

// Greatest first; `n` is a power of two.
DEVICE void sort(Key *keys, int n) {
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

// The greatest keys of all threads, in order, at the front of `kept`. Those threads whose own
// greatest is among the first CANDIDATES hold them all, so at most CANDIDATES * N are sorted, and
// of keys in no order not many more than CANDIDATES.
template <int N, class KeyAt>
DEVICE void select(Shared &shared, KeyAt key_at) {
    const int thread = thread_index();
    Key greatest = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const Key key = key_at(i);
        greatest = key > greatest ? key : greatest;
    }
    shared.greatest[thread] = greatest;
    if (thread == 0) shared.count = 0;
    sync_block();
    sort(shared.greatest, THREADS);
    const Key least = shared.greatest[CANDIDATES - 1];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const Key key = key_at(i);
        if (key != 0 && key >= least) shared.kept[count_up(&shared.count)] = key;
    }
    sync_block();
    int n = CANDIDATES;
    while (n < shared.count) n *= 2;
    for (int i = shared.count + thread; i < n; i += THREADS) shared.kept[i] = 0;
    sync_block();
    sort(shared.kept, n);
}

DEVICE float block_max(Shared &shared, float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, shuffle_xor(x, lanes));
    if (thread_index() % 32 == 0) shared.warps[thread_index() / 32] = x;
    sync_block();
    float most = shared.warps[0];
    for (int i = 1; i < WARPS; i++) most = fmaxf(most, shared.warps[i]);
    sync_block();
    return most;
}

DEVICE float block_sum(Shared &shared, float x) {
    x = warp_sum(x);
    if (thread_index() % 32 == 0) shared.warps[thread_index() / 32] = x;
    sync_block();
    float sum = 0.0f;
    for (int i = 0; i < WARPS; i++) sum += shared.warps[i];
    sync_block();
    return sum;
}

// One block per slice and row.
DEVICE void top_slice(const TopParams &p) {
    Shared &shared = shared_as<Shared>();
    const int thread = thread_index(), first = block_x() * TOP_SLICE + thread;
    const float *logits = p.logits + (long long)block_y() * p.width;
    float value[SLICE_KEYS];
    float most = -3.0e38f;
#pragma unroll
    for (int i = 0; i < SLICE_KEYS; i++) {
        const int column = first + i * THREADS;
        value[i] = column < p.columns ? logits[column] : minus_infinity();
        most = fmaxf(most, value[i]);
    }
    most = block_max(shared, most);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < SLICE_KEYS; i++) sum += expf(value[i] - most);
    sum = block_sum(shared, sum);

    select<SLICE_KEYS>(shared, [&](int i) {
        const int column = first + i * THREADS;
        return column < p.columns ? key_of(value[i], p.first + column) : 0;
    });
    const long long slice = (long long)block_y() * grid_x() + block_x();
    if (thread < CANDIDATES) p.keys[slice * CANDIDATES + thread] = shared.kept[thread];
    if (thread == 0) {
        p.sums[2 * slice] = most;
        p.sums[2 * slice + 1] = sum;
    }
}

// One block per row.
DEVICE void top_merge(const TopParams &p) {
    Shared &shared = shared_as<Shared>();
    const int thread = thread_index(), keys = p.slices * CANDIDATES;
    const long long first = (long long)block_x() * p.slices;
    float most = -3.0e38f;
    for (int i = thread; i < p.slices; i += THREADS) most = fmaxf(most, p.sums[2 * (first + i)]);
    most = block_max(shared, most);
    float sum = 0.0f;
    for (int i = thread; i < p.slices; i += THREADS)
        sum += p.sums[2 * (first + i) + 1] * expf(p.sums[2 * (first + i)] - most);
    sum = block_sum(shared, sum);

    select<MERGE_KEYS>(shared, [&](int i) {
        const int at = thread + i * THREADS;
        return at < keys ? p.keys[first * CANDIDATES + at] : (Key)0;
    });
    float *out = p.out + (long long)block_x() * (2 * CANDIDATES + 1);
    if (thread < CANDIDATES) {
        const Key key = shared.kept[thread];
        out[thread] = key == 0 ? minus_infinity() : logit_of(key);
        out[CANDIDATES + thread] = key == 0 ? 0.0f : (float)id_of(key);
    }
    if (thread == 0) out[2 * CANDIDATES] = logf(sum);
}

KERNEL(top_slices, THREADS, 2, sizeof(Shared), TopParams, top_slice)
KERNEL(top_rows, THREADS, 2, sizeof(Shared), TopParams, top_merge)
