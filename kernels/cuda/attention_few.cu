// Softmax attention of few rows over the paged cache: the packed (row, query head) pairs of a key head are
// a block's, and its warps share every tile of keys: of the scores each takes its keys, of the outputs its
// columns, so that all of them work on a single row, too. The keys are split over the grid, each block gives
// its part, and attention_merge.cu adds them up.
// Grid: (splits, key heads * row tiles, segments).
#include "sight.cuh"
#include "swizzle.cuh"

// TILES of 16 packed rows. Warps stand in DOWN lines of ACROSS; a line has its share of the rows.
template <int HEAD_, int TILES, int DOWN, int ACROSS_, int KEYS_>
struct Few {
    static constexpr int HEAD = HEAD_, ROWS = 16 * TILES, KEYS = KEYS_, ACROSS = ACROSS_;
    static constexpr int THREADS = 32 * DOWN * ACROSS, UNITS = HEAD / 8;
    // Of a warp:
    static constexpr int MINE = TILES / DOWN, WARP_KEYS = KEYS / ACROSS, COLUMNS = HEAD / ACROSS;
};

template <class T>
struct FewShared {
    bf16 q[T::ROWS][T::HEAD];
    bf16 keys[T::KEYS][T::HEAD];
    bf16 values[T::KEYS][T::HEAD];
    bf16 weights[T::ROWS][T::KEYS];
    float most[T::ACROSS][T::ROWS];  // greatest score of a warp's keys; in the end its sum
    Sight sight[T::ROWS];
    int head[T::ROWS];  // of the query among those of all rows, -1 beyond the last
};

// The running softmax of a warp: of its tiles a lane holds rows `lane / 4` and 8 below, columns
// `2 (lane % 4)` and the next of every eight.
template <class T>
struct FewRunning {
    float out[T::MINE][T::COLUMNS / 8][4];
    float greatest[T::MINE][2];  // in units of log 2
    float sum[T::MINE][2];       // of this lane's keys
};

template <class T>
using Scores = float[T::MINE][T::WARP_KEYS / 8][4];

// Starts copying a tile of keys, or of values.
template <class T>
DEVICE void copy_tile(bf16 (*to)[T::HEAD], const void *cache, const AttentionParams &p,
                      const Segment &segment, int kv_head, int token) {
    const int unit = thread_index() % T::UNITS;
#pragma unroll 4
    for (int key = thread_index() / T::UNITS; key < T::KEYS; key += T::THREADS / T::UNITS) {
        const bool valid = token + key < segment.past + segment.rows;
        const long long place = place_of(p, segment, kv_head, valid ? token + key : 0);
        copy_async(unit_at(to, key, unit), (const bf16 *)cache + place * T::HEAD + 8 * unit, valid);
    }
    commit_copies();
}

// Brings a tile into the L2 cache.
template <class T>
DEVICE void fetch_tile(const AttentionParams &p, const Segment &segment, int kv_head, int token) {
    constexpr int LINES = T::HEAD / 64;
#pragma unroll 1
    for (int i = thread_index(); i < T::KEYS * LINES; i += T::THREADS) {
        if (token + i / LINES >= segment.past) break;
        const long long place = place_of(p, segment, kv_head, token + i / LINES);
        fetch_ahead((const bf16 *)p.keys + place * T::HEAD + i % LINES * 64);
        fetch_ahead((const bf16 *)p.values + place * T::HEAD + i % LINES * 64);
    }
}

// Right operands of two steps of 16 dimensions from `unit` on, for a warp's keys.
template <class T>
DEVICE void load_keys(unsigned (&to)[2][T::WARP_KEYS / 8][2], bf16 (*keys)[T::HEAD], int first, int unit) {
    const int lane = thread_index() % 32;
    unsigned four[4];
    if constexpr (T::WARP_KEYS == 8) {
        load_matrices(four, unit_at(keys, first + lane % 8, unit + lane / 8));
#pragma unroll
        for (int i = 0; i < 4; i++) to[i / 2][0][i % 2] = four[i];
    } else {
#pragma unroll
        for (int i = 0; i < T::WARP_KEYS / 8; i++) {
            const int step = i % 2, n = i / 2, key = first + 16 * n + lane / 16 * 8 + lane % 8;
            load_matrices(four, unit_at(keys, key, unit + 2 * step + lane / 8 % 2));
#pragma unroll
            for (int j = 0; j < 4; j++) to[step][2 * n + j / 2][j % 2] = four[j];
        }
    }
}

template <class T>
DEVICE void score(Scores<T> &scores, FewShared<T> &shared, int row, int across) {
    const int lane = thread_index() % 32;
    // Eight units at a time, within which the swizzle differs.
#pragma unroll 1
    for (int eight = 0; eight < T::UNITS; eight += 8) {
        bf16(*q)[T::HEAD] = reinterpret_cast<bf16(*)[T::HEAD]>(&shared.q[0][8 * eight]);
        bf16(*k)[T::HEAD] = reinterpret_cast<bf16(*)[T::HEAD]>(&shared.keys[0][8 * eight]);
#pragma unroll
        for (int unit = 0; unit < 8; unit += 4) {
            unsigned keys[2][T::WARP_KEYS / 8][2], queries[2][T::MINE][4];
            load_keys<T>(keys, k, across * T::WARP_KEYS, unit);
#pragma unroll
            for (int i = 0; i < 2 * T::MINE; i++)
                load_matrices(queries[i % 2][i / 2],
                              unit_at(q, row + 16 * (i / 2) + lane % 16, unit + 2 * (i % 2) + lane / 16));
#pragma unroll
            for (int step = 0; step < 2; step++)
#pragma unroll
                for (int t = 0; t < T::MINE; t++)
#pragma unroll
                    for (int n = 0; n < T::WARP_KEYS / 8; n++)
                        multiply_add(scores[t][n], queries[step][t], keys[step][n][0], keys[step][n][1]);
        }
    }
}

// Which of 32 tokens from `token` on a row sees.
DEVICE unsigned seen_of(const Sight &sight, int token, int past, bool tree) {
    const int from = max_of(sight.first - token, 0), to = (tree ? past : sight.end) - token;
    unsigned seen = to <= 0 ? 0u : to >= 32 ? ~0u : (1u << to) - 1;
    seen = from >= 32 ? 0u : seen & (~0u << from);
    const int behind = token - past;  // of the rows, whose words say which
    if (!tree || behind <= -32 || behind >= TREE_ROWS) return seen;
    return seen | (unsigned)(behind < 0 ? sight.word << -behind : sight.word >> behind);
}

// Scales and masks the scores of keys from `token` on, and leaves the greatest of each row in `most`.
template <class T>
DEVICE void mask(Scores<T> &scores, FewShared<T> &shared, int row, int across, int token, int past,
                 bool tree, bool masked) {
    const int lane = thread_index() % 32;
    constexpr float scale = (T::HEAD == 256 ? 0.0625f : 0.08838834764831845f) * LOG2_E;
    static_assert(T::WARP_KEYS <= 32, "a word of them");
#pragma unroll
    for (int t = 0; t < T::MINE; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int line = row + 16 * t + lane / 4 + 8 * half;
            unsigned seen = ~0u;
            if (masked) seen = seen_of(shared.sight[line], token, past, tree) >> (2 * (lane % 4));
            float most = -INFINITY;
#pragma unroll
            for (int n = 0; n < T::WARP_KEYS / 8; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    float &value = scores[t][n][2 * half + c];
                    value = (seen >> (8 * n + c)) & 1 ? value * scale : -INFINITY;
                    most = fmaxf(most, value);
                }
            most = fmaxf(most, shuffle_xor(most, 1));
            most = fmaxf(most, shuffle_xor(most, 2));
            if (lane % 4 == 0) shared.most[across][line] = most;
        }
}

// Scores to weights, which all warps of the line need.
template <class T>
DEVICE void weigh(FewRunning<T> &running, Scores<T> &scores, FewShared<T> &shared, int row, int across) {
    const int lane = thread_index() % 32;
#pragma unroll
    for (int t = 0; t < T::MINE; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int line = row + 16 * t + lane / 4 + 8 * half;
            float greatest = running.greatest[t][half];
#pragma unroll
            for (int i = 0; i < T::ACROSS; i++) greatest = fmaxf(greatest, shared.most[i][line]);
            // Nothing seen yet: any finite number will do.
            const float base = greatest == -INFINITY ? 0.0f : greatest;
            const float fade = fast_exp2(running.greatest[t][half] - base);
            running.greatest[t][half] = greatest;
            float sum = running.sum[t][half] * fade;
#pragma unroll
            for (int n = 0; n < T::WARP_KEYS / 8; n++) {
                const float lo = fast_exp2(scores[t][n][2 * half] - base);
                const float hi = fast_exp2(scores[t][n][2 * half + 1] - base);
                sum += lo + hi;
                const int unit = across * T::WARP_KEYS / 8 + n;
                store<unsigned>(unit_at(shared.weights, line, unit), lane % 4, pack(lo, hi));
            }
            running.sum[t][half] = sum;
#pragma unroll
            for (int n = 0; n < T::COLUMNS / 8; n++) {
                running.out[t][n][2 * half] *= fade;
                running.out[t][n][2 * half + 1] *= fade;
            }
        }
}

template <class T>
DEVICE void add_values(FewRunning<T> &running, FewShared<T> &shared, int row, int across) {
    const int lane = thread_index() % 32;
#pragma unroll 2
    for (int k = 0; k < T::KEYS / 16; k++) {
        unsigned weights[T::MINE][4], values[T::COLUMNS / 16][4];
        const int key = 16 * k + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
        for (int t = 0; t < T::MINE; t++)
            load_matrices(weights[t],
                          unit_at(shared.weights, row + 16 * t + lane % 16, 2 * k + lane / 16));
#pragma unroll
        for (int n = 0; n < T::COLUMNS / 16; n++) {
            const int unit = across * T::COLUMNS / 8 + 2 * n + lane / 16;
            load_matrices_transposed(values[n], unit_at(shared.values, key, unit));
        }
#pragma unroll
        for (int t = 0; t < T::MINE; t++)
#pragma unroll
            for (int n = 0; n < T::COLUMNS / 8; n++)
                multiply_add(running.out[t][n], weights[t], values[n / 2][n % 2 * 2],
                             values[n / 2][n % 2 * 2 + 1]);
    }
}

// This block's part of the outputs.
template <class T>
DEVICE void give_part(const FewRunning<T> &running, FewShared<T> &shared, const AttentionParams &p, int row,
                      int across) {
    const int lane = thread_index() % 32;
#pragma unroll
    for (int t = 0; t < T::MINE; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int line = row + 16 * t + lane / 4 + 8 * half, head = shared.head[line];
            if (head < 0) continue;
            const long long part = (long long)block_x() * p.rows * p.heads + head;
            if (across == 0 && lane % 4 == 0) {
                float sum = 0.0f;
#pragma unroll
                for (int i = 0; i < T::ACROSS; i++) sum += shared.most[i][line];
                store<Float2>(p.partial_max, part, {{running.greatest[t][half], sum}});
            }
            float *out = p.partial + part * T::HEAD + across * T::COLUMNS + 2 * (lane % 4);
#pragma unroll
            for (int n = 0; n < T::COLUMNS / 8; n++)
                store<Float2>(out, 4 * n, {{running.out[t][n][2 * half], running.out[t][n][2 * half + 1]}});
        }
}

template <class T>
DEVICE void attention_few(const AttentionParams &p) {
    FewShared<T> &shared = shared_as<FewShared<T>>();
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
    if (from < to) fetch_tile<T>(p, segment, kv_head, from * T::KEYS);
    wait_for_earlier();
    if (from >= to) {
        if (thread_index() < T::ROWS) give_nothing(p, shared.head[thread_index()]);
        return;
    }
    const int unit = thread_index() % T::UNITS;
#pragma unroll 4
    for (int line = thread_index() / T::UNITS; line < T::ROWS; line += T::THREADS / T::UNITS) {
        const int head = shared.head[line];
        const long long at = (long long)max_of(head, 0) * T::HEAD + 8 * unit;
        copy_async(unit_at(shared.q, line, unit), (const bf16 *)p.q + at, head >= 0);
    }

    FewRunning<T> running = {};
#pragma unroll
    for (int t = 0; t < T::MINE; t++) running.greatest[t][0] = running.greatest[t][1] = -INFINITY;
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    const int across = warp % T::ACROSS, row = 16 * T::MINE * (warp / T::ACROSS);
    const bool live = packed + row < pairs;
    // While the scores of a tile are worked out its values arrive, and then the next keys.
    copy_tile<T>(shared.keys, p.keys, p, segment, kv_head, from * T::KEYS);
    copy_tile<T>(shared.values, p.values, p, segment, kv_head, from * T::KEYS);
#pragma unroll 1
    for (int tile = from; tile < to; tile++) {
        const int token = tile * T::KEYS;
        const bool masked = token < reach.all_from || token + T::KEYS > segment.past;
        wait_copies<1>();
        sync_block();
        Scores<T> scores = {};
        if (live) {
            score<T>(scores, shared, row, across);
            mask<T>(scores, shared, row, across, token + across * T::WARP_KEYS, segment.past, tree,
                    masked);
        }
        sync_block();
        if (tile + 1 < to)
            copy_tile<T>(shared.keys, p.keys, p, segment, kv_head, token + T::KEYS);
        else
            commit_copies();
        if (live) weigh(running, scores, shared, row, across);
        wait_copies<1>();
        sync_block();
        if (live) add_values(running, shared, row, across);
        if (tile + 1 == to) break;
        sync_block();
        copy_tile<T>(shared.values, p.values, p, segment, kv_head, token + T::KEYS);
    }
    wait_copies<0>();
#pragma unroll
    for (int t = 0; t < T::MINE; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = running.sum[t][half];
            sum += shuffle_xor(sum, 1);
            sum += shuffle_xor(sum, 2);
            if (lane % 4 == 0) shared.most[across][row + 16 * t + lane / 4 + 8 * half] = sum;
        }
    sync_block();
    if (live) give_part(running, shared, p, row, across);
}

using Few256 = Few<256, 1, 1, 8, ATTENTION_FEW_KEYS>;
using Tree256 = Few<256, 2, 1, 8, ATTENTION_FEW_KEYS>;
using Few128 = Few<128, 2, 2, 4, ATTENTION_FEW_KEYS>;
using Block128 = Few<128, ATTENTION_ROWS / 16, 2, 4, ATTENTION_FEW_KEYS>;
static_assert(Few256::ROWS == ATTENTION_FEW_ROWS_256 && Few128::ROWS == ATTENTION_FEW_ROWS_128, "");
static_assert(Tree256::ROWS == ATTENTION_TREE_ROWS_256, "");

#define FEW(name, tile)                                                                            \
    KERNEL_AHEAD(name, tile::THREADS, 2, sizeof(FewShared<tile>), AttentionParams, attention_few<tile>)

FEW(attention_few_256, Few256)
FEW(attention_tree_256, Tree256)
FEW(attention_few_128, Few128)
FEW(attention_block_128, Block128)
