// Matrices in shared memory whose eight-row tiles are loaded without bank conflicts.
#pragma once
#include "device.cuh"

// Sixteen-byte units are swizzled by the row, so that eight rows at one unit hit all banks.
template <int WIDTH>
DEVICE bf16 *unit_at(bf16 (*lines)[WIDTH], int row, int unit) {
    static_assert(WIDTH % 64 == 0 || WIDTH == 32, "whole rows of 128 bytes, or half of one");
    return lines[row] + 8 * (unit ^ (WIDTH == 32 ? row / 2 & 3 : row & 7));
}
