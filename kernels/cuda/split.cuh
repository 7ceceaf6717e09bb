// Matrices of f32 as sums of two of bf16, a high and a low part, and their products on the tensor
// cores, exact to about 2^-16.
#pragma once
#include "swizzle.cuh"

// The high and the low part of a matrix.
template <int HEIGHT, int WIDTH>
struct Halves {
    bf16 at[2][HEIGHT][WIDTH];
};

// A lane's part of a 16 x 8 tile: rows `lane / 4` and 8 below, columns `2 (lane % 4)` and next.
struct Tile {
    float at[4];
};

// Operands of a product: 16 x 16 on the left; on the right 16 x 8, high and low part.
struct Left {
    unsigned high[4], low[4];
};
struct Right {
    unsigned high[2], low[2];
};

DEVICE unsigned low_part(unsigned high, float x, float y) {
    return pack(x - low_half(high), y - high_half(high));
}

// Two values side by side, at an even column.
template <int HEIGHT, int WIDTH>
DEVICE void store_pair(Halves<HEIGHT, WIDTH> &to, int row, int column, float x, float y) {
    const unsigned high = pack(x, y);
    store<unsigned>(unit_at(to.at[0], row, column / 8) + column % 8, 0, high);
    store<unsigned>(unit_at(to.at[1], row, column / 8) + column % 8, 0, low_part(high, x, y));
}

// Rows `row..` and columns `8 tile..`.
template <int HEIGHT, int WIDTH>
DEVICE void store_tile(Halves<HEIGHT, WIDTH> &to, int row, int tile, const Tile &x, int lane) {
    const int column = 8 * tile + 2 * (lane % 4);
    store_pair(to, row + lane / 4, column, x.at[0], x.at[1]);
    store_pair(to, row + lane / 4 + 8, column, x.at[2], x.at[3]);
}

// Two tiles side by side as a left operand.
DEVICE Left left_of(const Tile &x, const Tile &next) {
    Left a;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float *pair = (i < 2 ? x : next).at + 2 * (i % 2);
        a.high[i] = pack(pair[0], pair[1]);
        a.low[i] = low_part(a.high[i], pair[0], pair[1]);
    }
    return a;
}

// Rows `row..` and columns `16 step..` of a matrix.
template <int HEIGHT, int WIDTH>
DEVICE Left left_of(Halves<HEIGHT, WIDTH> &from, int row, int step, int lane) {
    Left a;
    load_matrices(a.high, unit_at(from.at[0], row + lane % 16, 2 * step + lane / 16));
    load_matrices(a.low, unit_at(from.at[1], row + lane % 16, 2 * step + lane / 16));
    return a;
}

// The transpose of rows `16 step..` and columns `column..` of a matrix.
template <int HEIGHT, int WIDTH>
DEVICE Left left_of_transposed(Halves<HEIGHT, WIDTH> &from, int column, int step, int lane) {
    const int row = 16 * step + lane / 16 * 8 + lane % 8, unit = column / 8 + lane / 8 % 2;
    Left a;
    load_matrices_transposed(a.high, unit_at(from.at[0], row, unit));
    load_matrices_transposed(a.low, unit_at(from.at[1], row, unit));
    return a;
}

// Rows `16 step..` and columns `8 tile..` of a matrix: one load brings both parts.
template <int HEIGHT, int WIDTH>
DEVICE Right right_of(Halves<HEIGHT, WIDTH> &from, int step, int tile, int lane) {
    unsigned parts[4];
    const int row = 16 * step + lane / 8 % 2 * 8 + lane % 8;
    load_matrices_transposed(parts, unit_at(from.at[lane / 16], row, tile));
    return Right{{parts[0], parts[1]}, {parts[2], parts[3]}};
}

// The transpose of rows `8 tile..` and columns `16 step..`.
template <int HEIGHT, int WIDTH>
DEVICE Right right_of_transposed(Halves<HEIGHT, WIDTH> &from, int step, int tile, int lane) {
    unsigned parts[4];
    const int row = 8 * tile + lane % 8, unit = 2 * step + lane / 8 % 2;
    load_matrices(parts, unit_at(from.at[lane / 16], row, unit));
    return Right{{parts[0], parts[1]}, {parts[2], parts[3]}};
}

// The first `tiles` of COUNT sums, part by part: products that follow each other belong to different
// sums, so none waits for the one before.
template <int COUNT>
DEVICE void accumulate(Tile (&sums)[COUNT], const Left &a, const Right (&b)[COUNT],
                       int tiles = COUNT) {
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        if (n < tiles) multiply_add(sums[n].at, a.low, b[n].high[0], b[n].high[1]);
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        if (n < tiles) multiply_add(sums[n].at, a.high, b[n].low[0], b[n].low[1]);
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        if (n < tiles) multiply_add(sums[n].at, a.high, b[n].high[0], b[n].high[1]);
}

// A left operand in memory, as the lanes of a warp load it.
struct StoredLeft {
    Bytes16 high[32], low[32];
};

DEVICE void store_left(StoredLeft &to, const Left &a, int lane) {
    to.high[lane] = {{a.high[0], a.high[1], a.high[2], a.high[3]}};
    to.low[lane] = {{a.low[0], a.low[1], a.low[2], a.low[3]}};
}

DEVICE Left load_left(const StoredLeft &from, int lane) {
    const Bytes16 high = from.high[lane], low = from.low[lane];
    Left a;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a.high[i] = high.word[i];
        a.low[i] = low.word[i];
    }
    return a;
}
