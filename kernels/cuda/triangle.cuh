// Unit lower triangular systems of ROWS rows in blocks of 16, on the tensor cores: x = right + system x, where
// the blocks on the diagonal are inverted first.
#pragma once
#include "split.cuh"

// The blocks on the diagonal: [j][i] is row i, column j, zero unless j < i.
template <int ROWS>
using Diagonal = float[ROWS / 16][16][16 + 4];

// Inverses of 1 minus the blocks, into the diagonal of `system`, by 4 * ROWS threads: four have a column, each four
// of its rows, and take one value after the other from the rows below it.
template <int ROWS>
DEVICE void invert_diagonal(Halves<ROWS, ROWS> &system, const Diagonal<ROWS> &diagonal) {
    const int at = thread_index() / 4, block = at / 16, lane = thread_index() % 32;
    const int first = 4 * (lane % 4);
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = first + i == at % 16 ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < 15; j++) {
        const float value = shuffle(x[j % 4], lane / 4 * 4 + j / 4);
        const Float4 below = load<Float4>(diagonal[block][j] + first, 0);
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] += below.at[i] * value;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const bf16 high = to_bf16(x[i]);
        const int row = 16 * block + first + i;
        unit_at(system.at[0], row, at / 8)[at % 8] = high;
        unit_at(system.at[1], row, at / 8)[at % 8] = to_bf16(x[i] - to_float(high));
    }
}

// A warp's columns, tiles of 8 of them for each block of rows.
template <int BLOCKS, int TILES>
struct Columns {
    Tile at[BLOCKS][TILES];
};

// Block by block: x_b = inverse_b (right_b + sum of system_bc x_c over c < b), in place; the columns from tile
// `tile` on of `solved` hold x then, too. Columns do not mix, so a warp solves its own without waiting for
// another.
template <int BLOCKS, int TILES, int ROWS, int WIDTH>
DEVICE void solve(Columns<BLOCKS, TILES> &x, Halves<ROWS, ROWS> &system, Halves<ROWS, WIDTH> &solved, int tile,
                  int lane) {
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        Tile(&mine)[TILES] = x.at[b];
#pragma unroll
        for (int c = 0; c <= b; c++) {
            if (c == b) {
#pragma unroll
                for (int n = 0; n < TILES; n++) {
                    store_tile(solved, 16 * b, tile + n, mine[n], lane);
                    mine[n] = Tile{};
                }
                sync_warp();
            }
            Right above[TILES];
#pragma unroll
            for (int n = 0; n < TILES; n++) above[n] = right_of(solved, c, tile + n, lane);
            accumulate(mine, left_of(system, 16 * b, c, lane), above);
        }
        sync_warp();
#pragma unroll
        for (int n = 0; n < TILES; n++) store_tile(solved, 16 * b, tile + n, mine[n], lane);
        sync_warp();
    }
}
