// out = x w^T for few rows: the weights stream through shared memory once, 16 outputs to a warp, the
// rows of x as the narrow side of the tensor cores' tiles. The (tile of outputs, step of inputs)
// units are dealt out evenly, in ranges; a tile that several ranges share is summed by the range it
// begins in, whose last tile it is; the others, which begin with it, leave their parts early. Weights
// are fetched while the kernels ahead still run. Grid: any number of blocks.
//
// A gated product has gates and values as the halves of its outputs, and writes silu(gate) * value:
// each warp then takes eight of both, so that a lane holds a gate and its value.
#include "device.cuh"
#include "params.h"
#include "swizzle.cuh"

constexpr int DEPTH = LINEAR_DEPTH;
constexpr int UNITS = DEPTH / 8;

// At most ROWS_ rows; 16 outputs to each of the warps; so many units on their way or at work. SHARERS_ warps
// share their outputs: each multiplies a part of the inputs, so that the rows are read as much less often from
// shared memory, and in the end they exchange their sums.
template <int ROWS_, int WARPS, int STAGES_, bool GATED_ = false, int SHARERS_ = 1>
struct Shape {
    static constexpr int ROWS = ROWS_, STAGES = STAGES_, SHARERS = SHARERS_;
    static constexpr int STEPS = DEPTH / 16 / SHARERS;  // of 16 inputs that a warp multiplies
    // Few sums are kept twice, so that products wait less for each other.
    static constexpr int PARITIES = SHARERS == 1 ? 2 : 1;
    static constexpr bool GATED = GATED_;
    static constexpr int THREADS = 32 * WARPS, OUT = 16 * WARPS;
    static constexpr int TALL = GATED ? OUT / 2 : OUT;  // outputs from one tile to the next
    static constexpr int APART = THREADS / UNITS;       // rows from a thread's copy to its next
    static_assert(APART % 8 == 0, "the swizzle repeats");
};

template <class S>
struct LinearShared {
    bf16 w[S::STAGES][S::OUT][DEPTH];
    bf16 x[S::STAGES][S::ROWS][DEPTH];
};

// Where a thread copies from next: unit after unit, tile after tile.
template <class S>
struct Cursor {
    const bf16 *w;  // the thread's first output
    const bf16 *x;  // its first row
    int outputs;    // outputs left from its first one on
    int step;

    DEVICE Cursor(const LinearParams &p, int unit) {
        const int steps = p.input / DEPTH, tile = unit / steps;
        const int row = thread_index() / UNITS, column = 8 * (thread_index() % UNITS);
        step = unit % steps;
        const int output = tile * S::TALL + output_of(p, row);
        w = (const bf16 *)p.w + (long long)output * p.input + step * DEPTH + column;
        x = (const bf16 *)p.x + (long long)row * p.input + step * DEPTH + column;
        outputs = p.output - output;
    }

    DEVICE void advance(const LinearParams &p) {
        w += DEPTH;
        x += DEPTH;
        if (++step < p.input / DEPTH) return;
        step = 0;
        w += (long long)(S::TALL - 1) * p.input;
        x -= p.input;
        outputs -= S::TALL;
    }

    // Output of a row of the tile, from the tile's first one on.
    static DEVICE int output_of(const LinearParams &p, int row) {
        return S::GATED ? row / 8 % 2 * (p.output / 2) + row / 16 * 8 + row % 8 : row;
    }

    // Outputs from the thread's first one to its `i`th.
    static DEVICE int reach(const LinearParams &p, int i) {
        return output_of(p, i * S::APART);  // a multiple of 8: rows below do not carry into it
    }
};

// A thread's place in the first rows of a stage; those APART rows on follow in the same column.
DEVICE int place_of_thread() {
    const int row = thread_index() / UNITS, unit = thread_index() % UNITS;
    return row * DEPTH + 8 * (unit ^ (row & 7));
}

template <class S>
DEVICE void copy_weights(LinearShared<S> &shared, const LinearParams &p, const Cursor<S> &from,
                         int stage, int place) {
    bf16 *to = &shared.w[stage][0][0] + place;
#pragma unroll
    for (int i = 0; i < S::OUT / S::APART; i++) {
        const bool valid = S::GATED || S::APART * i < from.outputs;
        const long long row = valid ? (long long)from.reach(p, i) * p.input : 0;
        copy_async_stream(to + S::APART * i * DEPTH, valid ? from.w + row : (const bf16 *)p.w, valid);
    }
}

template <class S>
DEVICE void copy_rows(LinearShared<S> &shared, const LinearParams &p, const Cursor<S> &from, int stage,
                      int place) {
    static_assert(S::ROWS % S::APART == 0, "all threads copy");
    bf16 *to = &shared.x[stage][0][0] + place;
#pragma unroll
    for (int i = 0; i < S::ROWS / S::APART; i++) {
        const bool valid = S::APART * i + thread_index() / UNITS < p.rows;
        const long long row = valid ? (long long)S::APART * i * p.input : 0;
        copy_async(to + S::APART * i * DEPTH, valid ? from.x + row : (const bf16 *)p.x, valid);
    }
}

// A warp's sums of each of its tiles: outputs `lane / 4` and `lane / 4 + 8` of 16, rows `8 n + 2 (lane % 4)`
// and next.
template <class S>
struct Sums {
    float at[S::SHARERS][S::PARITIES][S::ROWS / 8][4];
};

// Operands of two steps of 16 inputs.
template <class S>
struct Operands {
    static constexpr int ROWS = S::ROWS;
    unsigned w[S::SHARERS][2][4];
    unsigned x[ROWS == 8 ? 1 : ROWS / 8][4];

    DEVICE void load(LinearShared<S> &shared, int stage, int k) {
        const int group = thread_index() / 32 / S::SHARERS, lane = thread_index() % 32;
#pragma unroll
        for (int tile = 0; tile < S::SHARERS; tile++)
#pragma unroll
            for (int d = 0; d < 2; d++) {
                const int output = 16 * (group * S::SHARERS + tile) + lane % 16;
                load_matrices(w[tile][d], unit_at(shared.w[stage], output, 2 * (k + d) + lane / 16));
            }
        if constexpr (ROWS == 8) {
            load_matrices(x[0], unit_at(shared.x[stage], lane % 8, 2 * k + lane / 8));
        } else {
#pragma unroll
            for (int i = 0; i < ROWS / 8; i++) {
                const int row = i / 2 * 16 + lane / 16 * 8 + lane % 8;
                const int unit = 2 * (k + i % 2) + lane / 8 % 2;
                load_matrices(x[i], unit_at(shared.x[stage], row, unit));
            }
        }
    }

    DEVICE void multiply(Sums<S> &sums) const {
#pragma unroll
        for (int d = 0; d < 2; d++)
#pragma unroll
            for (int tile = 0; tile < S::SHARERS; tile++) {
                float(*sum)[4] = sums.at[tile][d % S::PARITIES];
                if constexpr (ROWS == 8) {
                    multiply_add(sum[0], w[tile][d], x[0][2 * d], x[0][2 * d + 1]);
                } else {
#pragma unroll
                    for (int n = 0; n < ROWS / 16; n++) {
                        const unsigned(&part)[4] = x[2 * n + d];
                        multiply_add(sum[2 * n], w[tile][d], part[0], part[1]);
                        multiply_add(sum[2 * n + 1], w[tile][d], part[2], part[3]);
                    }
                }
            }
    }
};

// silu(gate) * value, both rounded first, as without the gate.
DEVICE bf16 gated(float gate, float value) {
    const unsigned pair = pack(gate, value);
    const float x = low_half(pair);
    return to_bf16(x * fast_reciprocal(1.0f + fast_exp2(-LOG2_E * x)) * high_half(pair));
}

// Few rows: all operands are loaded before the first product.
template <class S>
DEVICE void multiply_unit(Sums<S> &sums, LinearShared<S> &shared, int stage) {
    constexpr int ROWS = S::ROWS, PAIRS = S::STEPS / 2;
    constexpr int TOGETHER = ROWS <= 16 ? PAIRS : ROWS == 32 ? 2 : 1;
    const int first = thread_index() / 32 % S::SHARERS * S::STEPS;
#pragma unroll
    for (int pair = 0; pair < PAIRS; pair += TOGETHER) {
        Operands<S> operands[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) operands[i].load(shared, stage, first + 2 * (pair + i));
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) operands[i].multiply(sums);
    }
}

// The whole sums of one tile for each warp, of which the others that share it had parts. They are exchanged
// through the weights of a stage that all have multiplied.
template <class S>
DEVICE void add_sharers(float (&whole)[S::ROWS / 8][4], const Sums<S> &sums, LinearShared<S> &shared, int stage) {
    constexpr int SHARERS = S::SHARERS, UNITS = S::ROWS / 8;
    const int warp = thread_index() / 32, lane = thread_index() % 32, sharer = warp % SHARERS;
#pragma unroll
    for (int tile = 0; tile < SHARERS; tile++)
#pragma unroll
        for (int n = 0; n < UNITS; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                float sum = sums.at[tile][0][n][c];
                if (S::PARITIES == 2) sum += sums.at[tile][S::PARITIES - 1][n][c];
                if (SHARERS == 1 || tile == sharer) whole[n][c] = sum;
            }
    if constexpr (SHARERS > 1) {
        typedef Float4 Parts[SHARERS - 1][UNITS][32];  // of one warp, for those behind it
        static_assert(sizeof(Parts) * (S::THREADS / 32) <= sizeof(shared.w[0]), "room for the parts");
        Parts *parts = reinterpret_cast<Parts *>(&shared.w[stage]);
        sync_block();
#pragma unroll
        for (int tile = 0; tile < SHARERS; tile++) {
            if (tile == sharer) continue;
#pragma unroll
            for (int n = 0; n < UNITS; n++) {
                const float(&x)[4] = sums.at[tile][0][n];
                const int behind = (tile - sharer + SHARERS) % SHARERS;
                parts[warp][behind - 1][n][lane] = Float4{{x[0], x[1], x[2], x[3]}};
            }
        }
        sync_block();
#pragma unroll
        for (int behind = 1; behind < SHARERS; behind++) {
            const int from = warp - sharer + (sharer - behind + SHARERS) % SHARERS;
#pragma unroll
            for (int n = 0; n < UNITS; n++) {
                const Float4 x = parts[from][behind - 1][n][lane];
#pragma unroll
                for (int c = 0; c < 4; c++) whole[n][c] += x.at[c];
            }
        }
    }
}

// The outputs of a tile, one by one: in f32, or where rows begin anywhere.
template <class S>
DEVICE void store_tile(const float (&sums)[S::ROWS / 8][4], const LinearParams &p, int tile) {
    const int warp = thread_index() / 32, lane = thread_index() % 32;
#pragma unroll
    for (int n = 0; n < S::ROWS / 8; n++)
#pragma unroll
        for (int c = 0; c < (S::GATED ? 2 : 4); c++) {
            const float(&sum)[4] = sums[n];
            const int row = 8 * n + 2 * (lane % 4) + c % 2;
            if (row >= p.rows) continue;
            if (S::GATED) {
                const int output = tile * S::TALL + 8 * warp + lane / 4;
                const long long at = (long long)row * (p.output / 2) + output;
                store<bf16>(p.out, at, gated(sum[c], sum[c + 2]));
                continue;
            }
            const int output = tile * S::TALL + 16 * warp + lane / 4 + 8 * (c / 2);
            if (output >= p.output) continue;
            const long long at = (long long)row * p.output + output;
            if (p.out_f32)
                store<float>(p.out, at, sum[c]);
            else
                store<bf16>(p.out, at, to_bf16(sum[c]));
        }
}

// The same, 16 bytes of a row at a time, through the weights of a stage that all have multiplied.
template <class S>
DEVICE void store_lines(const float (&sums)[S::ROWS / 8][4], LinearShared<S> &shared, int stage, const LinearParams &p,
                        int tile, int width) {
    constexpr int TALL = S::TALL, UNITS_OUT = TALL / 8;
    typedef bf16 Lines[S::ROWS][TALL + 8];
    static_assert(sizeof(Lines) <= sizeof(shared.w[0]), "room for the lines");
    Lines &lines = *reinterpret_cast<Lines *>(&shared.w[stage]);
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    sync_block();
#pragma unroll
    for (int n = 0; n < S::ROWS / 8; n++)
#pragma unroll
        for (int c = 0; c < (S::GATED ? 2 : 4); c++) {
            const float(&sum)[4] = sums[n];
            bf16 *line = lines[8 * n + 2 * (lane % 4) + c % 2];
            if (S::GATED)
                line[8 * warp + lane / 4] = gated(sum[c], sum[c + 2]);
            else
                line[16 * warp + lane / 4 + 8 * (c / 2)] = to_bf16(sum[c]);
        }
    sync_block();
#pragma unroll
    for (int i = 0; i < S::ROWS * UNITS_OUT; i += S::THREADS) {
        const int row = (i + thread_index()) / UNITS_OUT, unit = (i + thread_index()) % UNITS_OUT;
        const int output = tile * TALL + 8 * unit;
        if (S::ROWS * UNITS_OUT % S::THREADS != 0 && row >= S::ROWS) break;
        if (row >= p.rows || output >= width) continue;
        store<Bytes16>(p.out, ((long long)row * width + output) / 8, load<Bytes16>(lines[row], unit));
    }
}

// First unit of a range, and the range of a unit.
DEVICE int first_unit(int range, int units) { return (int)((unsigned)units * range / grid_x()); }
DEVICE int range_of(int unit, int units) {
    return (int)(((unsigned)(unit + 1) * grid_x() - 1) / units);
}

template <class S>
DEVICE void finish_tile(const Sums<S> &sums, LinearShared<S> &shared, int stage, const LinearParams &p, int tile,
                        int range, int units) {
    const int steps = p.input / DEPTH;
    const int owner = range_of(tile * steps, units);
    const int last = range_of(tile * steps + steps - 1, units);
    constexpr int ROWS = S::ROWS, THREADS = S::THREADS, PART = S::OUT * ROWS;
    float whole[ROWS / 8][4];
    add_sharers(whole, sums, shared, stage);
    if (range != owner) {
        float *part = p.partial + (long long)range * PART + thread_index();
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) part[(4 * n + c) * THREADS] = whole[n][c];
        sync_block();
        if (thread_index() == 0) {
            fence();
            count_up(&p.arrivals[tile]);
        }
        return;
    }
    if (owner < last) {
        if (thread_index() == 0) {
            wait_for_count(&p.arrivals[tile], last - owner);
            p.arrivals[tile] = 0;
        }
        sync_block();
        for (int other = owner + 1; other <= last; other++) {
            const float *part = p.partial + (long long)other * PART + thread_index();
#pragma unroll
            for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
                for (int c = 0; c < 4; c++) whole[n][c] += load_fresh(part + (4 * n + c) * THREADS);
        }
    }
    const int width = S::GATED ? p.output / 2 : p.output;
    if (p.out_f32 || width % 8 != 0)
        store_tile<S>(whole, p, tile);
    else
        store_lines<S>(whole, shared, stage, p, tile, width);
}

template <class S>
DEVICE void linear(const LinearParams &p) {
    constexpr int STAGES = S::STAGES;
    LinearShared<S> &shared = shared_as<LinearShared<S>>();
    const int steps = p.input / DEPTH, units = ceil_div(p.output, S::OUT) * steps;
    // The range that sums a tile comes after those that it waits for.
    const int range = grid_x() - 1 - block_x();
    const int begin = first_unit(range, units), end = first_unit(range + 1, units);
    const int place = place_of_thread();
    Cursor<S> next(p, begin);
    for (int i = 0; i < STAGES - 1; i++) {
        if (begin + i < end) copy_weights(shared, p, next, i, place);
        next.advance(p);
    }
    wait_for_earlier();
    Cursor<S> rows(p, begin);
    for (int i = 0; i < STAGES - 1; i++) {
        if (begin + i < end) copy_rows(shared, p, rows, i, place);
        commit_copies();
        rows.advance(p);
    }
    Sums<S> sums = {};
    int stage = 0, step = begin % steps, tile = begin / steps;
    for (int unit = begin; unit < end; unit++) {
        wait_copies<STAGES - 2>();
        sync_block();
        multiply_unit(sums, shared, stage);
        if (unit + STAGES - 1 < end) {
            const int free = stage == 0 ? STAGES - 1 : stage - 1;
            copy_weights(shared, p, next, free, place);
            copy_rows(shared, p, next, free, place);
            next.advance(p);
        }
        commit_copies();
        const int done = stage;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        step++;
        if (unit + 1 < end && step < steps) continue;
        finish_tile<S>(sums, shared, done, p, tile, range, units);
        sums = {};
        step = 0;
        tile++;
    }
}

// Blocks of 4 warps run in pairs; those of 8 read the rows of x half as often. Hopper has the shared
// memory for more stages.
#if OVERLAPS
constexpr int STAGES_16 = 5, STAGES_32 = 5;
#else
constexpr int STAGES_16 = 4, STAGES_32 = 2;
#endif
template <bool GATED>
using Shape8 = Shape<8, 4, 5, GATED>;
template <bool GATED>
using Shape16 = Shape<16, 4, STAGES_16, GATED>;
template <bool GATED>
using Shape32 = Shape<32, LINEAR_WIDE_OUT / 16, STAGES_32, GATED, 2>;
using Shape64 = Shape<64, LINEAR_OUT / 16, 3>;

#define LINEAR(name, blocks, ...)                                                                  \
    KERNEL_AHEAD(name, (__VA_ARGS__::THREADS), blocks, sizeof(LinearShared<__VA_ARGS__>),           \
                 LinearParams, linear<__VA_ARGS__>)

LINEAR(linear_8, 2, Shape8<false>)
LINEAR(linear_16, 2, Shape16<false>)
LINEAR(linear_32, 1, Shape32<false>)
LINEAR(linear_64, 2, Shape64)
LINEAR(gated_linear_8, 2, Shape8<true>)
LINEAR(gated_linear_16, 2, Shape16<true>)
LINEAR(gated_linear_32, 1, Shape32<true>)
