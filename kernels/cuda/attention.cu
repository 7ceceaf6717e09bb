// Softmax attention over the paged cache. The query heads that share a key head are packed with the
// rows into tiles of (row, head) pairs, 16 to a warp; the keys are split over the grid, each block
// reads the lengths from device memory, and attention_merge.cu adds the parts up.
// Grid: (splits, key heads * row tiles, segments).
#include "sight.cuh"
#include "swizzle.cuh"

// What a block works on: packed rows, and keys of which so many stages are on their way.
template <int HEAD_, int WARPS, int KEYS_, int STAGES_>
struct Tile {
    static constexpr int HEAD = HEAD_, THREADS = 32 * WARPS, ROWS = 16 * WARPS;
    static constexpr int KEYS = KEYS_, STAGES = STAGES_;
};

template <class T>
struct AttentionShared {
    bf16 q[T::ROWS][T::HEAD];
    bf16 keys[T::STAGES][T::KEYS][T::HEAD];
    bf16 values[T::STAGES][T::KEYS][T::HEAD];
    Sight sight[T::ROWS];
    int head[T::ROWS];  // of the query among those of all rows, -1 beyond the last
};

template <class T>
DEVICE void copy_keys(AttentionShared<T> &shared, const AttentionParams &p, const Segment &segment,
                      int kv_head, int token, int stage) {
    constexpr int UNITS = T::HEAD / 8;
#pragma unroll
    for (int i = thread_index(); i < T::KEYS * UNITS; i += T::THREADS) {
        const int key = i / UNITS, unit = i % UNITS;
        const bool valid = token + key < segment.past + segment.rows;
        const long long place = place_of(p, segment, kv_head, valid ? token + key : 0);
        const long long from = place * T::HEAD + 8 * unit;
        copy_async(unit_at(shared.keys[stage], key, unit), (const bf16 *)p.keys + from, valid);
        copy_async(unit_at(shared.values[stage], key, unit), (const bf16 *)p.values + from, valid);
    }
}

// The running softmax of a warp's 16 packed rows: a lane holds rows `lane / 4` and `lane / 4 + 8`,
// columns `2 (lane % 4)` and the next of every eight.
template <int HEAD>
struct Running {
    float out[HEAD / 8][4];
    float greatest[2];  // in units of log 2
    float sum[2];       // of this lane's columns
};

template <class T>
DEVICE void attend(Running<T::HEAD> &running, AttentionShared<T> &shared, int stage, int token,
                   int past, bool tree, bool masked, float scale) {
    constexpr int HEAD = T::HEAD, KEYS = T::KEYS;
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    float scores[KEYS / 8][4] = {};
    // Operands of a few products are loaded before the first of them, here and below.
    constexpr int DEEP = KEYS > 32 ? 1 : 2;
#pragma unroll
    for (int first = 0; first < HEAD / 16; first += DEEP) {
        unsigned q[DEEP][4], keys[DEEP][KEYS / 16][4];
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            const int k = first + d;
            load_matrices(q[d], unit_at(shared.q, 16 * warp + lane % 16, 2 * k + lane / 16));
#pragma unroll
            for (int n = 0; n < KEYS / 16; n++) {
                const int key = 16 * n + lane / 16 * 8 + lane % 8;
                load_matrices(keys[d][n], unit_at(shared.keys[stage], key, 2 * k + lane / 8 % 2));
            }
        }
#pragma unroll
        for (int d = 0; d < DEEP; d++)
#pragma unroll
            for (int n = 0; n < KEYS / 16; n++) {
                multiply_add(scores[2 * n], q[d], keys[d][n][0], keys[d][n][1]);
                multiply_add(scores[2 * n + 1], q[d], keys[d][n][2], keys[d][n][3]);
            }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const Sight sight = shared.sight[16 * warp + lane / 4 + 8 * half];
        float greatest = running.greatest[half];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float &score = scores[n][2 * half + c];
                score *= scale;
                const int at = token + 8 * n + 2 * (lane % 4) + c;
                if (masked && !sees(sight, at, past, tree)) score = -INFINITY;
                greatest = fmaxf(greatest, score);
            }
        greatest = fmaxf(greatest, shuffle_xor(greatest, 1));
        greatest = fmaxf(greatest, shuffle_xor(greatest, 2));
        // Nothing seen yet: any finite number will do.
        const float base = greatest == -INFINITY ? 0.0f : greatest;
        const float fade = fast_exp2(running.greatest[half] - base);
        running.greatest[half] = greatest;
        running.sum[half] *= fade;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float &score = scores[n][2 * half + c];
                score = fast_exp2(score - base);
                running.sum[half] += score;
            }
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++) {
            running.out[n][2 * half] *= fade;
            running.out[n][2 * half + 1] *= fade;
        }
    }
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
        const unsigned weights[4] = {pack(scores[2 * k][0], scores[2 * k][1]),
                                     pack(scores[2 * k][2], scores[2 * k][3]),
                                     pack(scores[2 * k + 1][0], scores[2 * k + 1][1]),
                                     pack(scores[2 * k + 1][2], scores[2 * k + 1][3])};
        const int key = 16 * k + lane / 8 % 2 * 8 + lane % 8;
        constexpr int WIDE = 4;
#pragma unroll
        for (int first = 0; first < HEAD / 16; first += WIDE) {
            unsigned values[WIDE][4];
#pragma unroll
            for (int n = 0; n < WIDE; n++) {
                const int unit = 2 * (first + n) + lane / 16;
                load_matrices_transposed(values[n], unit_at(shared.values[stage], key, unit));
            }
#pragma unroll
            for (int n = 0; n < WIDE; n++) {
                float(*out)[4] = running.out + 2 * (first + n);
                multiply_add(out[0], weights, values[n][0], values[n][1]);
                multiply_add(out[1], weights, values[n][2], values[n][3]);
            }
        }
    }
}

template <int HEAD>
DEVICE void finish(Running<HEAD> &running, const AttentionParams &p, const Segment &segment,
                   int kv_head, int packed) {
    const int lane = thread_index() % 32, group = p.heads / p.kv_heads;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = running.sum[half];
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        const int pair = packed + lane / 4 + 8 * half;
        if (pair >= segment.rows * group) continue;
        const long long row = segment.first + pair / group;
        const int head = kv_head * group + pair % group;
        const long long at = row * p.heads + head;
        if (p.splits == 1) {
            const float by = 1.0f / sum;
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) {
                const int column = 8 * n + 2 * (lane % 4);
                const float lo = running.out[n][2 * half] * by * gate_at<HEAD>(p, row, head, column);
                const float hi =
                    running.out[n][2 * half + 1] * by * gate_at<HEAD>(p, row, head, column + 1);
                store<unsigned>(p.out, (at * HEAD + column) / 2, pack(lo, hi));
            }
            continue;
        }
        const long long part = (long long)block_x() * p.rows * p.heads + at;
        if (lane % 4 == 0) {
            p.partial_max[2 * part] = running.greatest[half];
            p.partial_max[2 * part + 1] = sum;
        }
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++) {
            const long long to = (part * HEAD + 8 * n + 2 * (lane % 4)) / 2;
            store<Float2>(p.partial, to, {{running.out[n][2 * half], running.out[n][2 * half + 1]}});
        }
    }
}

template <class T>
DEVICE void attention(const AttentionParams &p) {
    AttentionShared<T> &shared = shared_as<AttentionShared<T>>();
    const Segment segment = p.tables.segments[block_z()];
    const int kv_head = block_y() / p.row_tiles, group = p.heads / p.kv_heads;
    const int packed = block_y() % p.row_tiles * T::ROWS, pairs = segment.rows * group;
    const bool tree = segment.tree != 0;
    if (packed >= pairs) {
        wait_for_earlier();
        return;
    }

    // Up to the wait only tables are read, which are copied ahead of all kernels of a pass.
    if (thread_index() < T::ROWS) {
        const int pair = min_of(packed + thread_index(), pairs - 1), row = pair / group;
        const int head = (segment.first + row) * p.heads + kv_head * group + pair % group;
        shared.head[thread_index()] = packed + thread_index() < pairs ? head : -1;
        shared.sight[thread_index()] = sight_of(p, segment, row);
    }
    sync_block();
    // Without a window it is known before the rows are looked at.
    const int last = min_of(segment.rows, (packed + T::ROWS - 1) / group + 1);
    Reach reach = {0, 0, segment.past + (p.causal && !tree ? last : segment.rows)};
    if (p.window) reach = reach_of(shared.sight);
    const int origin = reach.first / T::KEYS, tiles = ceil_div(reach.end, T::KEYS) - origin;
    const int share = ceil_div(tiles, p.splits);
    const int from = origin + block_x() * share;
    const int to = min_of(from + share, origin + tiles);
    wait_for_earlier();
    if (from >= to && p.splits > 1) {
        if (thread_index() < T::ROWS) give_nothing(p, shared.head[thread_index()]);
        return;
    }
    constexpr int UNITS = T::HEAD / 8;
#pragma unroll
    for (int i = thread_index(); i < T::ROWS * UNITS; i += T::THREADS) {
        const int line = i / UNITS, unit = i % UNITS, head = shared.head[line];
        const long long at = (long long)max_of(head, 0) * T::HEAD + 8 * unit;
        copy_async(unit_at(shared.q, line, unit), (const bf16 *)p.q + at, head >= 0);
    }

    Running<T::HEAD> running = {};
    running.greatest[0] = running.greatest[1] = -INFINITY;
    const int warp = thread_index() / 32;
    const float scale = (T::HEAD == 256 ? 0.0625f : 0.08838834764831845f) * LOG2_E;
    for (int i = 0; i < T::STAGES - 1; i++) {
        if (from + i < to) copy_keys(shared, p, segment, kv_head, (from + i) * T::KEYS, i);
        commit_copies();
    }
    int stage = 0;
    for (int tile = from; tile < to; tile++) {
        const int token = tile * T::KEYS, next = tile + T::STAGES - 1;
        wait_copies<T::STAGES - 2>();
        sync_block();
        if (next < to) {
            const int free = stage == 0 ? T::STAGES - 1 : stage - 1;
            copy_keys(shared, p, segment, kv_head, next * T::KEYS, free);
        }
        commit_copies();
        if (packed + 16 * warp < pairs) {
            const bool masked = token < reach.all_from || token + T::KEYS > segment.past;
            attend(running, shared, stage, token, segment.past, tree, masked, scale);
        }
        stage = stage + 1 == T::STAGES ? 0 : stage + 1;
    }
    wait_copies<0>();
    if (packed + 16 * warp < pairs) finish(running, p, segment, kv_head, packed + 16 * warp);
}

using Tile128 = Tile<128, ATTENTION_ROWS / 16, 64, 2>;
using Tile256 = Tile<256, ATTENTION_ROWS / 16, 32, 2>;

#define ATTENTION(name, tile)                                                                      \
    KERNEL_AHEAD(name, tile::THREADS, 1, sizeof(AttentionShared<tile>), AttentionParams, attention<tile>)

ATTENTION(attention_128, Tile128)
ATTENTION(attention_256, Tile256)
