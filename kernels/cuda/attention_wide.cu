// Softmax attention of prompts over the paged cache, on Hopper: as attention.cu for segments that are no
// trees, by warpgroups. One warpgroup brings keys and values, two hold 64 packed (row, head) pairs each,
// whose sums stay in registers; the products of a tile of keys run while the weights of the tile before
// are worked out. Grid: (splits, key heads * row tiles, segments), long rows first.
#include "device.cuh"
#include "params.h"
#include "sight.cuh"
#include "swizzle.cuh"
#include "warpgroup.cuh"

#if WARPGROUPS
constexpr int HEAD = 256, PANELS = HEAD / PANEL;
constexpr float SCALE = 0.0625f * LOG2_E;
constexpr int KEYS = ATTENTION_WIDE_KEYS;
constexpr int READERS = 2, STAGES = 2;
constexpr int ROWS = 64 * READERS, THREADS = WARPGROUP * (1 + READERS);
// Of 64 K registers of a multiprocessor.
constexpr int BRINGER_REGISTERS = 40, READER_REGISTERS = 232;
static_assert(ROWS == ATTENTION_WIDE_ROWS, "a warpgroup holds 64 pairs");

struct WideShared {
    bf16 q[PANELS][ROWS][PANEL];
    bf16 keys[STAGES][PANELS][KEYS][PANEL];
    bf16 values[STAGES][PANELS][KEYS][PANEL];
    // A stage is brought, and free again.
    Arrivals keys_here[STAGES], keys_free[STAGES];
    Arrivals values_here[STAGES], values_free[STAGES];
};

// What a block works on: packed pairs from `packed` on, and tiles of keys.
struct Part {
    Segment segment;
    int kv_head, group;
    int packed, pairs;
    int from, to;
};

// Tokens that a row sees.
struct Span {
    int first, end;
};

DEVICE Span span_of(const AttentionParams &p, const Segment &segment, int row) {
    const int at = segment.past + row;
    return {p.window ? max_of(0, at + 1 - p.window) : 0,
            p.causal ? at + 1 : segment.past + segment.rows};
}

DEVICE Part part_of(const AttentionParams &p) {
    Part part;
    part.segment = p.tables.segments[block_z()];
    part.kv_head = block_y() % p.kv_heads;
    part.group = p.heads / p.kv_heads;
    part.pairs = part.segment.rows * part.group;
    part.packed = (p.row_tiles - 1 - block_y() / p.kv_heads) * ROWS;
    const int last = min_of(part.packed + ROWS, part.pairs) - 1;
    const Span first_span = span_of(p, part.segment, part.packed / part.group);
    const Span last_span = span_of(p, part.segment, last / part.group);
    const int origin = first_span.first / KEYS, end = ceil_div(last_span.end, KEYS);
    const int share = ceil_div(end - origin, p.splits);
    part.from = origin + block_x() * share;
    part.to = min_of(part.from + share, end);
    return part;
}

// Keys or values of a tile: four rows of 512 bytes at a time, a warp each. `rows` is at this lane's first
// unit of the first row of the cache that this warp brings.
DEVICE void bring(bf16 (*to)[KEYS][PANEL], const bf16 *rows, const AttentionParams &p, const Part &part,
                  int tile) {
    const int warp = thread_index() % WARPGROUP / 32, lane = thread_index() % 32;
    const int tokens = part.segment.past + part.segment.rows;
    const int last = part.segment.blocks + (tokens - 1) / BLOCK_TOKENS;
    const long long stride = p.kv_heads * HEAD;
    int entry = part.segment.blocks + tile * (KEYS / BLOCK_TOKENS);
    unsigned block = p.tables.blocks[min_of(entry, last)];
#pragma unroll 1
    for (int first = 0; first < KEYS; first += BLOCK_TOKENS) {
        const bf16 *from = rows + block * BLOCK_TOKENS * stride;
        block = p.tables.blocks[min_of(++entry, last)];
#pragma unroll
        for (int i = 0; i < BLOCK_TOKENS; i += 4) {
            const int key = first + i + warp;
            const bool valid = tile * KEYS + key < tokens;
            copy_async(unit_at(to[lane / 8], key, lane % 8), from + i * stride, valid);
        }
    }
}

DEVICE void bring_all(WideShared &shared, const AttentionParams &p, const Part &part) {
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    const long long at = (long long)(warp * p.kv_heads + part.kv_head) * HEAD + 8 * lane;
    int stage = 0, round = 0;
#pragma unroll 1
    for (int tile = part.from; tile < part.to; tile++) {
        wait_for_round(shared.keys_free[stage], round - 1);
        bring(shared.keys[stage], (const bf16 *)p.keys + at, p, part, tile);
        arrive_after_copies(shared.keys_here[stage]);
        wait_for_round(shared.values_free[stage], round - 1);
        bring(shared.values[stage], (const bf16 *)p.values + at, p, part, tile);
        arrive_after_copies(shared.values_here[stage]);
        if (++stage == STAGES) stage = 0, round++;
    }
}

// Of a warp's 16 pairs: a lane holds pairs `lane / 4` and `lane / 4 + 8`, columns `2 (lane % 4)` and the
// next of every eight.
struct Reader {
    float out[HEAD / 8][4];
    float scores[KEYS / 8][4];
    unsigned weights[KEYS / 16][4];
    float greatest[2];  // score
    float sum[2];       // of this lane's columns
    Span span[2];
    Span common;  // what all pairs of the warpgroup see
};

DEVICE int pair_of(const Part &part, int half) {
    const int thread = thread_index() - WARPGROUP;
    return part.packed + thread / 32 * 16 + thread % 32 / 4 + 8 * half;
}

DEVICE Span span_of_pair(const AttentionParams &p, const Part &part, int pair) {
    return span_of(p, part.segment, min_of(pair, part.pairs - 1) / part.group);
}

// Queries of a warpgroup's pairs, zeros beyond the last.
DEVICE void bring_queries(WideShared &shared, const AttentionParams &p, const Part &part) {
    const int warp = thread_index() / 32 - 4, lane = thread_index() % 32;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const int line = 16 * warp + i, pair = min_of(part.packed + line, part.pairs - 1);
        const long long row = part.segment.first + pair / part.group;
        const long long head = row * p.heads + part.kv_head * part.group + pair % part.group;
        copy_async(unit_at(shared.q[lane / 8], line, lane % 8),
                   (const bf16 *)p.q + head * HEAD + 8 * lane, part.packed + line < part.pairs);
    }
    commit_copies();
    wait_copies<0>();
    show_to_products();
    sync_warpgroup();
}

DEVICE void leave(Arrivals &arrivals) {
    if (thread_index() % 32 == 0) arrive(arrivals);
}

DEVICE void begin_scores(Reader &reader, unsigned long long q, unsigned long long keys) {
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++)
#pragma unroll
        for (int step = 0; step < PANEL / 16; step++)
            multiply_rows(reader.scores, operand_at(q, panel * ROWS * 128 + step * PANEL_STEP),
                          operand_at(keys, panel * KEYS * 128 + step * PANEL_STEP), panel + step > 0);
    commit_products();
}

DEVICE void begin_sums(Reader &reader, unsigned long long values) {
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++)
        multiply_panels(reader.out, reader.weights[step], operand_at(values, step * PANEL_ROWS_STEP));
    commit_products();
}

// Scores of a tile that not all pairs see whole.
DEVICE void mask(Reader &reader, int token) {
    if (token >= reader.common.first && token + KEYS <= reader.common.end) return;
    const int column = token + 2 * (thread_index() % 4);
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const Span &span = reader.span[c / 2];
            const int at = column + 8 * n + c % 2;
            if (at < span.first || at >= span.end) reader.scores[n][c] = -INFINITY;
        }
}

// Scores become weights, in f32; answers by what earlier sums fade.
DEVICE Float2 weigh(Reader &reader) {
    Float2 fades;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float greatest = reader.greatest[half];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            greatest = fmaxf(greatest, fmaxf(reader.scores[n][2 * half], reader.scores[n][2 * half + 1]));
        greatest = fmaxf(greatest, shuffle_xor(greatest, 1));
        greatest = fmaxf(greatest, shuffle_xor(greatest, 2));
        // Nothing seen yet: any finite number will do.
        const float base = greatest == -INFINITY ? 0.0f : greatest * SCALE;
        fades.at[half] = fast_exp2(reader.greatest[half] * SCALE - base);
        reader.greatest[half] = greatest;
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float &score = reader.scores[n][2 * half + c];
                score = fast_exp2(score * SCALE - base);
                sum += score;
            }
        reader.sum[half] = reader.sum[half] * fades.at[half] + sum;
    }
    return fades;
}

DEVICE void round_weights(Reader &reader) {
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *pair = reader.scores[2 * step + i / 2] + 2 * (i % 2);
            reader.weights[step][i] = pack(pair[0], pair[1]);
        }
}

DEVICE void fade_sums(Reader &reader, const Float2 &fades) {
    // Mostly the greatest scores have been seen.
    if (!any_lane(fades.at[0] != 1.0f || fades.at[1] != 1.0f)) return;
#pragma unroll
    for (int n = 0; n < HEAD / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) reader.out[n][c] *= fades.at[c / 2];
}

DEVICE void read_tiles(Reader &reader, WideShared &shared, const Part &part) {
    constexpr int STAGE_BYTES = KEYS * HEAD * 2;
    const int first_line = 64 * (thread_index() / WARPGROUP - 1);
    const unsigned long long q = operand(shared.q[0][first_line], ROWS * 128);
    const unsigned long long keys = operand(shared.keys, KEYS * 128);
    const unsigned long long values = operand(shared.values, KEYS * 128);
    wait_for_round(shared.keys_here[0], 0);
    show_to_products();
    begin_products();
    begin_scores(reader, q, keys);
    wait_products<0>();
    settle(reader.scores);
    leave(shared.keys_free[0]);
    mask(reader, part.from * KEYS);
    weigh(reader);
    round_weights(reader);
    int stage = 0, round = 0;
    for (int tile = part.from + 1; tile < part.to; tile++) {
        const int next = stage + 1 == STAGES ? 0 : stage + 1, next_round = round + (next == 0);
        wait_for_round(shared.keys_here[next], next_round);
        show_to_products();
        begin_products();
        begin_scores(reader, q, operand_at(keys, next * STAGE_BYTES));
        wait_for_round(shared.values_here[stage], round);
        show_to_products();
        begin_sums(reader, operand_at(values, stage * STAGE_BYTES));
        wait_products<1>();
        settle(reader.scores);
        leave(shared.keys_free[next]);
        mask(reader, tile * KEYS);
        const Float2 fades = weigh(reader);
        wait_products<0>();
        settle(reader.out);
        settle(reader.weights);
        leave(shared.values_free[stage]);
        fade_sums(reader, fades);
        round_weights(reader);
        stage = next;
        round = next_round;
    }
    wait_for_round(shared.values_here[stage], round);
    show_to_products();
    begin_products();
    begin_sums(reader, operand_at(values, stage * STAGE_BYTES));
    wait_products<0>();
    settle(reader.out);
    settle(reader.weights);
}

// Gates of two columns: query and gate of a head stand side by side.
DEVICE Float2 gates_at(const AttentionParams &p, long long row, int head, int column) {
    if (!p.gate) return {{1.0f, 1.0f}};
    const long long at = row * p.gate_stride + (long long)head * 2 * HEAD + column;
    const unsigned pair = load<unsigned>(p.gate, at / 2);
    return {{sigmoid(low_half(pair)), sigmoid(high_half(pair))}};
}

DEVICE void finish(Reader &reader, const AttentionParams &p, const Part &part) {
    const int lane = thread_index() % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = reader.sum[half];
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        const int pair = pair_of(part, half);
        if (pair >= part.pairs) continue;
        const long long row = part.segment.first + pair / part.group;
        const int head = part.kv_head * part.group + pair % part.group;
        const long long at = row * p.heads + head;
        if (p.splits == 1) {
            const float by = 1.0f / sum;
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) {
                const int column = 8 * n + 2 * (lane % 4);
                const Float2 gates = gates_at(p, row, head, column);
                const float lo = reader.out[n][2 * half] * by * gates.at[0];
                const float hi = reader.out[n][2 * half + 1] * by * gates.at[1];
                store<unsigned>(p.out, (at * HEAD + column) / 2, pack(lo, hi));
            }
            continue;
        }
        const long long split = (long long)block_x() * p.rows * p.heads + at;
        if (lane % 4 == 0) {
            p.partial_max[2 * split] = reader.greatest[half] * SCALE;
            p.partial_max[2 * split + 1] = sum;
        }
        if (part.from >= part.to) continue;
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++) {
            const long long to = (split * HEAD + 8 * n + 2 * (lane % 4)) / 2;
            store<Float2>(p.partial, to, {{reader.out[n][2 * half], reader.out[n][2 * half + 1]}});
        }
    }
}

DEVICE void read(WideShared &shared, const AttentionParams &p, const Part &part) {
    Reader reader = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        reader.greatest[half] = -INFINITY;
        reader.span[half] = span_of_pair(p, part, pair_of(part, half));
    }
    const int first = part.packed + 64 * (thread_index() / WARPGROUP - 1);
    reader.common = {span_of_pair(p, part, first + 63).first, span_of_pair(p, part, first).end};
    bring_queries(shared, p, part);
    if (part.from < part.to) read_tiles(reader, shared, part);
    finish(reader, p, part);
}

DEVICE void attention_wide(const AttentionParams &p) {
    WideShared &shared = shared_as<WideShared>();
    const Part part = part_of(p);
    if (part.packed >= part.pairs) {
        wait_for_earlier();
        return;
    }
    if (thread_index() == 0) {
#pragma unroll
        for (int stage = 0; stage < STAGES; stage++) {
            expect_arrivals(shared.keys_here[stage], WARPGROUP);
            expect_arrivals(shared.values_here[stage], WARPGROUP);
            expect_arrivals(shared.keys_free[stage], 4 * READERS);
            expect_arrivals(shared.values_free[stage], 4 * READERS);
        }
    }
    sync_block();
    wait_for_earlier();
    if (thread_index() < WARPGROUP) {
        give_registers<BRINGER_REGISTERS>();
        bring_all(shared, p, part);
    } else {
        take_registers<READER_REGISTERS>();
        read(shared, p, part);
    }
}

KERNEL_AHEAD(attention_wide_256, THREADS, 1, sizeof(WideShared), AttentionParams, attention_wide)
#else
KERNEL_ABSENT(attention_wide_256, AttentionParams)
#endif
