// Softmax attention over the paged cache. The query heads that share a key head are packed with the
// rows into tiles of 64 (row, head) pairs, 16 to a warp; the keys are split over the grid, each block
// reads the lengths from device memory, and a second kernel merges the parts.
// Grid: (splits, key heads * row tiles, segments).
#include "device.cuh"
#include "params.h"

constexpr int THREADS = 128;
constexpr float LOG2_E = 1.4426950408889634f;

// What a packed row sees: tokens `first..end` of a chain; of a tree those from `first` up to the
// committed length, then the rows whose bit is set.
struct Sight {
    int first;
    int end;
    unsigned long long word;
};

template <int HEAD>
struct AttentionShared {
    static constexpr int KEYS = 8192 / HEAD;  // keys per stage
    bf16 q[ATTENTION_ROWS][HEAD];
    bf16 keys[2][KEYS][HEAD];
    bf16 values[2][KEYS][HEAD];
    Sight sight[ATTENTION_ROWS];
};

// Sixteen-byte units are swizzled by the row, so that eight rows at one unit hit all banks.
template <int HEAD>
DEVICE bf16 *unit_at(bf16 (*lines)[HEAD], int row, int unit) {
    return lines[row] + 8 * (unit ^ (row & 7));
}

DEVICE Sight sight_of(const AttentionParams &p, const Segment &segment, int row) {
    const int position = p.tables.row_position[segment.first + row];
    Sight sight = {0, segment.past + (p.causal ? row + 1 : segment.rows), 0};
    if (p.window) sight.first = max_of(0, position + 1 - p.window);
    if (segment.tree) {
        unsigned long long word = p.causal ? p.tables.row_ancestors[segment.first + row] : ~0ull;
        for (int j = 0; j < segment.rows; j++) {
            const bool near = p.tables.row_position[segment.first + j] >= sight.first;
            if (near && ((word >> j) & 1)) sight.word |= 1ull << j;
        }
        sight.end = segment.past + segment.rows;
    }
    return sight;
}

DEVICE bool sees(const Sight &sight, int token, int past, bool tree) {
    if (tree && token >= past)
        return token < sight.end && ((sight.word >> (token - past)) & 1);
    return token >= sight.first && token < sight.end;
}

template <int HEAD>
DEVICE void copy_keys(AttentionShared<HEAD> &shared, const AttentionParams &p,
                      const Segment &segment, int kv_head, int token, int stage) {
    using S = AttentionShared<HEAD>;
    constexpr int UNITS = HEAD / 8;
#pragma unroll
    for (int i = thread_index(); i < S::KEYS * UNITS; i += THREADS) {
        const int key = i / UNITS, unit = i % UNITS;
        const bool valid = token + key < segment.past + segment.rows;
        const int at = valid ? token + key : 0;
        const unsigned block = p.tables.blocks[segment.blocks + at / BLOCK_TOKENS];
        const long long place = (long long)block * BLOCK_TOKENS + at % BLOCK_TOKENS;
        const long long from = (place * p.kv_heads + kv_head) * HEAD + 8 * unit;
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

template <int HEAD>
DEVICE void attend(Running<HEAD> &running, AttentionShared<HEAD> &shared, int stage, int token,
                   int past, bool tree, bool masked, float scale) {
    using S = AttentionShared<HEAD>;
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    float scores[S::KEYS / 8][4] = {};
#pragma unroll
    for (int k = 0; k < HEAD / 16; k++) {
        unsigned q[4];
        load_matrices(q, unit_at(shared.q, 16 * warp + lane % 16, 2 * k + lane / 16));
#pragma unroll
        for (int n = 0; n < S::KEYS / 16; n++) {
            unsigned keys[4];
            const int key = 16 * n + lane / 16 * 8 + lane % 8;
            load_matrices(keys, unit_at(shared.keys[stage], key, 2 * k + lane / 8 % 2));
            multiply_add(scores[2 * n], q, keys[0], keys[1]);
            multiply_add(scores[2 * n + 1], q, keys[2], keys[3]);
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const Sight sight = shared.sight[16 * warp + lane / 4 + 8 * half];
        float greatest = running.greatest[half];
#pragma unroll
        for (int n = 0; n < S::KEYS / 8; n++)
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
        for (int n = 0; n < S::KEYS / 8; n++)
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
    for (int k = 0; k < S::KEYS / 16; k++) {
        const unsigned weights[4] = {pack(scores[2 * k][0], scores[2 * k][1]),
                                     pack(scores[2 * k][2], scores[2 * k][3]),
                                     pack(scores[2 * k + 1][0], scores[2 * k + 1][1]),
                                     pack(scores[2 * k + 1][2], scores[2 * k + 1][3])};
        const int key = 16 * k + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
        for (int n = 0; n < HEAD / 16; n++) {
            unsigned values[4];
            load_matrices_transposed(values,
                                     unit_at(shared.values[stage], key, 2 * n + lane / 16));
            multiply_add(running.out[2 * n], weights, values[0], values[1]);
            multiply_add(running.out[2 * n + 1], weights, values[2], values[3]);
        }
    }
}

// Where a value of the output's gate lies: query and gate of a head stand side by side.
template <int HEAD>
DEVICE float gate_at(const AttentionParams &p, long long row, int head, int column) {
    if (!p.gate) return 1.0f;
    const long long at = row * p.gate_stride + (long long)head * 2 * HEAD + column;
    return sigmoid(to_float(load<bf16>(p.gate, at)));
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
            float *to = p.partial + part * HEAD + 8 * n + 2 * (lane % 4);
            to[0] = running.out[n][2 * half];
            to[1] = running.out[n][2 * half + 1];
        }
    }
}

template <int HEAD>
DEVICE void attention(const AttentionParams &p) {
    using S = AttentionShared<HEAD>;
    S &shared = shared_as<S>();
    const Segment segment = p.tables.segments[block_z()];
    const int kv_head = block_y() / p.row_tiles, group = p.heads / p.kv_heads;
    const int packed = block_y() % p.row_tiles * ATTENTION_ROWS, pairs = segment.rows * group;
    const bool tree = segment.tree != 0;
    if (packed >= pairs) return;

    constexpr int UNITS = HEAD / 8;
#pragma unroll
    for (int i = thread_index(); i < ATTENTION_ROWS * UNITS; i += THREADS) {
        const int line = i / UNITS, unit = i % UNITS, pair = packed + line;
        const bool valid = pair < pairs;
        const long long row = segment.first + (valid ? pair / group : 0);
        const long long head = row * p.heads + kv_head * group + (valid ? pair % group : 0);
        copy_async(unit_at(shared.q, line, unit), (const bf16 *)p.q + head * HEAD + 8 * unit, valid);
    }
    if (thread_index() < ATTENTION_ROWS) {
        const int pair = min_of(packed + thread_index(), pairs - 1);
        shared.sight[thread_index()] = sight_of(p, segment, pair / group);
    }
    sync_block();
    int first = segment.past + segment.rows, all_from = 0, end = 0;
    for (int i = 0; i < ATTENTION_ROWS; i++) {
        first = min_of(first, shared.sight[i].first);
        all_from = max_of(all_from, shared.sight[i].first);
        end = max_of(end, shared.sight[i].end);
    }
    const int origin = first / S::KEYS, tiles = ceil_div(end, S::KEYS) - origin;
    const int share = ceil_div(tiles, p.splits);
    const int from = origin + block_x() * share;
    const int to = min_of(from + share, origin + tiles);

    Running<HEAD> running = {};
    running.greatest[0] = running.greatest[1] = -INFINITY;
    const int warp = thread_index() / 32;
    const float scale = (HEAD == 256 ? 0.0625f : 0.08838834764831845f) * LOG2_E;
    if (from < to) copy_keys(shared, p, segment, kv_head, from * S::KEYS, 0);
    commit_copies();
    for (int tile = from; tile < to; tile++) {
        const int stage = (tile - from) % 2, token = tile * S::KEYS;
        wait_copies<0>();
        sync_block();
        if (tile + 1 < to) copy_keys(shared, p, segment, kv_head, token + S::KEYS, 1 - stage);
        commit_copies();
        if (packed + 16 * warp < pairs) {
            const bool masked = token < all_from || token + S::KEYS > segment.past;
            attend(running, shared, stage, token, segment.past, tree, masked, scale);
        }
    }
    wait_copies<0>();
    if (packed + 16 * warp < pairs) finish(running, p, segment, kv_head, packed + 16 * warp);
}

struct MergeShared {
    float weight[MOST_SPLITS];  // of each part, over the sum of all
};

// out = sum of the parts, weighted; times the gate. Grid: (heads, rows), a thread per column.
template <int HEAD>
DEVICE void merge(const AttentionParams &p) {
    MergeShared &shared = shared_as<MergeShared>();
    const long long at = (long long)block_y() * p.heads + block_x();
    const long long stride = (long long)p.rows * p.heads;
    if (thread_index() < 32) {
        constexpr int MINE = MOST_SPLITS / 32;
        float weight[MINE], sum[MINE], greatest = -INFINITY, total = 0.0f;
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            const int split = thread_index() + 32 * i;
            const bool valid = split < p.splits;
            const long long part = 2 * ((valid ? split : 0) * stride + at);
            weight[i] = valid ? p.partial_max[part] : -INFINITY;
            sum[i] = p.partial_max[part + 1];
            greatest = fmaxf(greatest, weight[i]);
        }
        greatest = warp_max(greatest);
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            weight[i] = fast_exp2(weight[i] - greatest);
            total += weight[i] * sum[i];
        }
        total = warp_sum(total);
#pragma unroll
        for (int i = 0; i < MINE; i++) shared.weight[thread_index() + 32 * i] = weight[i] / total;
    }
    const float gate = gate_at<HEAD>(p, block_y(), block_x(), thread_index());
    sync_block();
    const float *parts = p.partial + at * HEAD + thread_index();
    float out = 0.0f;
#pragma unroll 8
    for (int split = 0; split < p.splits; split++)
        out += shared.weight[split] * parts[split * stride * HEAD];
    store<bf16>(p.out, at * HEAD + thread_index(), to_bf16(out * gate));
}

KERNEL(attention_128, THREADS, 1, sizeof(AttentionShared<128>), AttentionParams, attention<128>)
KERNEL(attention_256, THREADS, 1, sizeof(AttentionShared<256>), AttentionParams, attention<256>)
KERNEL(attention_merge_128, 128, 1, sizeof(MergeShared), AttentionParams, merge<128>)
KERNEL(attention_merge_256, 256, 1, sizeof(MergeShared), AttentionParams, merge<256>)
