// out = x w^T for few rows: the weights stream through shared memory once, 16 outputs to a warp, the
// rows of x as the narrow side of the tensor cores' tiles. The (tile of outputs, step of inputs)
// units are dealt out evenly; a tile that several blocks share is summed, in block order, by the one
// that comes last, so the result does not depend on who that is. Grid: any number of blocks.
#include "device.cuh"
#include "params.h"

constexpr int THREADS = 128;
constexpr int OUT = LINEAR_OUT;
constexpr int DEPTH = LINEAR_DEPTH;
constexpr int UNITS = DEPTH / 8;

template <int ROWS>
struct LinearShared {
    static constexpr int STAGES = ROWS == 64 ? 3 : 4;
    bf16 w[STAGES][OUT][DEPTH];
    bf16 x[STAGES][ROWS][DEPTH];
    int last;  // whether this block came last to a shared tile
};

// Sixteen-byte units are swizzled by the row, so that eight rows at one unit hit all banks.
DEVICE bf16 *unit_at(bf16 (*lines)[DEPTH], int row, int unit) {
    return lines[row] + 8 * (unit ^ (row & 7));
}

template <int ROWS>
DEVICE void copy_unit(LinearShared<ROWS> &shared, const LinearParams &p, int unit, int stage) {
    const int steps = p.input / DEPTH, tile = unit / steps, step = unit % steps;
    const bf16 *w = (const bf16 *)p.w + step * DEPTH;
    const bf16 *x = (const bf16 *)p.x + step * DEPTH;
#pragma unroll
    for (int i = thread_index(); i < OUT * UNITS; i += THREADS) {
        const int row = i / UNITS, at = i % UNITS;
        const int output = tile * OUT + row;
        const bool valid = output < p.output;
        const long long from = (long long)(valid ? output : 0) * p.input + 8 * at;
        copy_async_stream(unit_at(shared.w[stage], row, at), w + from, valid);
    }
#pragma unroll
    for (int i = thread_index(); i < ROWS * UNITS; i += THREADS) {
        const int row = i / UNITS, at = i % UNITS;
        const bool valid = row < p.rows;
        const long long from = (long long)(valid ? row : 0) * p.input + 8 * at;
        copy_async(unit_at(shared.x[stage], row, at), x + from, valid);
    }
}

// A warp's sums: outputs `lane / 4` and `lane / 4 + 8` of its 16, rows `8 n + 2 (lane % 4)` and next.
template <int ROWS>
struct Sums {
    float at[ROWS / 8][4];
};

template <int ROWS>
DEVICE void multiply_unit(Sums<ROWS> &sums, LinearShared<ROWS> &shared, int stage) {
    const int warp = thread_index() / 32, lane = thread_index() % 32;
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k += 2) {
        unsigned w[2][4], x[2][4];
#pragma unroll
        for (int d = 0; d < 2; d++) {
            const int unit = 2 * (k + d) + lane / 16;
            load_matrices(w[d], unit_at(shared.w[stage], 16 * warp + lane % 16, unit));
        }
        if constexpr (ROWS == 8) {
            load_matrices(x[0], unit_at(shared.x[stage], lane % 8, 2 * k + lane / 8));
            multiply_add(sums.at[0], w[0], x[0][0], x[0][1]);
            multiply_add(sums.at[0], w[1], x[0][2], x[0][3]);
        } else {
#pragma unroll
            for (int n = 0; n < ROWS / 16; n++) {
                const int row = 16 * n + lane / 16 * 8 + lane % 8;
#pragma unroll
                for (int d = 0; d < 2; d++) {
                    const int unit = 2 * (k + d) + lane / 8 % 2;
                    load_matrices(x[d], unit_at(shared.x[stage], row, unit));
                    multiply_add(sums.at[2 * n], w[d], x[d][0], x[d][1]);
                    multiply_add(sums.at[2 * n + 1], w[d], x[d][2], x[d][3]);
                }
            }
        }
    }
}

template <int ROWS>
DEVICE void store_tile(const Sums<ROWS> &sums, const LinearParams &p, int tile) {
    const int warp = thread_index() / 32, lane = thread_index() % 32;
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int row = 8 * n + 2 * (lane % 4) + c % 2;
            const int output = tile * OUT + 16 * warp + lane / 4 + 8 * (c / 2);
            if (row >= p.rows || output >= p.output) continue;
            const long long at = (long long)row * p.output + output;
            if (p.out_f32)
                store<float>(p.out, at, sums.at[n][c]);
            else
                store<bf16>(p.out, at, to_bf16(sums.at[n][c]));
        }
}

// First unit of a block, and the block of a unit.
DEVICE int first_unit(int block, int units) {
    return (int)((long long)units * block / grid_x());
}
DEVICE int block_of(int unit, int units) {
    return (int)(((long long)(unit + 1) * grid_x() - 1) / units);
}

// A block shares at most its first and its last tile.
template <int ROWS>
DEVICE float *part_of(const LinearParams &p, int block, int tile, int units) {
    const int first_tile = first_unit(block, units) / (p.input / DEPTH);
    const long long part = 2ll * block + (tile == first_tile ? 0 : 1);
    return p.partial + part * OUT * ROWS;
}

template <int ROWS>
DEVICE void finish_tile(Sums<ROWS> &sums, LinearShared<ROWS> &shared, const LinearParams &p,
                        int tile, int units) {
    const int steps = p.input / DEPTH;
    const int from = block_of(tile * steps, units), to = block_of(tile * steps + steps - 1, units);
    if (from == to) {
        store_tile(sums, p, tile);
        return;
    }
    float *mine = part_of<ROWS>(p, block_x(), tile, units);
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) mine[(4 * n + c) * THREADS + thread_index()] = sums.at[n][c];
    fence();
    sync_block();
    if (thread_index() == 0) shared.last = count_up(&p.arrivals[tile]) == to - from;
    sync_block();
    if (!shared.last) return;
    fence();
    Sums<ROWS> total = {};
    for (int block = from; block <= to; block++) {
        const float *part = part_of<ROWS>(p, block, tile, units);
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                total.at[n][c] += load_fresh(part + (4 * n + c) * THREADS + thread_index());
    }
    store_tile(total, p, tile);
    if (thread_index() == 0) p.arrivals[tile] = 0;
}

template <int ROWS>
DEVICE void linear(const LinearParams &p) {
    using S = LinearShared<ROWS>;
    S &shared = shared_as<S>();
    const int steps = p.input / DEPTH, units = ceil_div(p.output, OUT) * steps;
    const int begin = first_unit(block_x(), units), end = first_unit(block_x() + 1, units);
    for (int i = 0; i < S::STAGES - 1; i++) {
        if (begin + i < end) copy_unit(shared, p, begin + i, i);
        commit_copies();
    }
    Sums<ROWS> sums = {};
    int stage = 0;
    for (int unit = begin; unit < end; unit++) {
        wait_copies<S::STAGES - 2>();
        sync_block();
        const int next = unit + S::STAGES - 1;
        if (next < end) copy_unit(shared, p, next, stage == 0 ? S::STAGES - 1 : stage - 1);
        commit_copies();
        multiply_unit(sums, shared, stage);
        if (unit + 1 == end || (unit + 1) % steps == 0) {
            finish_tile(sums, shared, p, unit / steps, units);
            sums = {};
        }
        stage = stage + 1 == S::STAGES ? 0 : stage + 1;
    }
}

KERNEL(linear_8, THREADS, 2, sizeof(LinearShared<8>), LinearParams, linear<8>)
KERNEL(linear_16, THREADS, 2, sizeof(LinearShared<16>), LinearParams, linear<16>)
KERNEL(linear_32, THREADS, 2, sizeof(LinearShared<32>), LinearParams, linear<32>)
KERNEL(linear_64, THREADS, 2, sizeof(LinearShared<64>), LinearParams, linear<64>)
