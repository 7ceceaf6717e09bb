// Hopper's instructions in plain C++. A product happens when it is waited for, not before, and copies
// that a barrier waits for land when somebody waits for its round.
#pragma once
#include "device.hpp"

#define WARPGROUPS 1

struct alignas(8) Arrivals {
    short count, missing;
    int round;
};

inline void expect_arrivals(Arrivals &arrivals, int count) {
    arrivals = {(short)count, (short)count, 0};
}
inline void arrive(Arrivals &arrivals) { emulate::arrive(arrivals.count, arrivals.missing, arrivals.round); }
inline void arrive_after_copies(Arrivals &arrivals) { emulate::copies_arrive(&arrivals); }
inline void wait_for_round(Arrivals &arrivals, int round) {
    do {
        emulate::land_copies(&arrivals, [&] { arrive(arrivals); });
        if ((arrivals.round & 1) != (round & 1)) return;
        emulate::relax();
    } while (true);
}

inline void show_to_products() {}
inline void sync_warpgroup() { emulate::sync_warpgroup(); }
template <int>
void give_registers() {}
template <int>
void take_registers() {}

inline bool any_lane(bool yes) {
    const unsigned char *all = emulate::exchange(&yes, sizeof yes);
    bool any = false;
    for (int lane = 0; lane < 32; lane++) any |= all[lane] != 0;
    return any;
}

// As the hardware has it: address, bytes from panel to panel and from eight rows to the next, all of them
// in units of 16 bytes; addresses count from the start of shared memory.
inline unsigned long long operand(const void *shared, int panel_bytes) {
    const long long at = (const unsigned char *)shared - emulate::place.shared;
    return 1ull << 62 | 64ull << 32 | (unsigned long long)(panel_bytes >> 4) << 16 | at >> 4;
}
inline unsigned long long operand_at(unsigned long long operand, int bytes) {
    return operand + (bytes >> 4);
}

namespace emulate {

inline float widen_half(unsigned short bits) { return bits_to_float((unsigned)bits << 16); }

// The values from so many rows and columns on, within a unit of eight columns, of where an operand points.
inline const unsigned short *operand_unit(unsigned long long operand, int row, int column) {
    const unsigned start = (operand & 0x3fff) << 4, panel_bytes = (operand >> 16 & 0x3fff) << 4;
    const unsigned group_bytes = (operand >> 32 & 0x3fff) << 4;
    unsigned at = start + row / 8 * group_bytes + row % 8 * 128 + 2 * (column % 64);
    if (column >= 64) at += column / 64 * panel_bytes;
    at ^= (at >> 7 & 7) << 4;  // the swizzle goes by the address
    return reinterpret_cast<const unsigned short *>(place.shared + at);
}

// Sixteen columns of a row.
inline void operand_row(float (&to)[16], unsigned long long operand, int row) {
    for (int half = 0; half < 2; half++) {
        const unsigned short *from = operand_unit(operand, row, 8 * half);
        for (int k = 0; k < 8; k++) to[8 * half + k] = widen_half(from[k]);
    }
}

}  // namespace emulate

inline void begin_products() {}
inline void commit_products() { emulate::commit_products(); }
template <int pending>
void wait_products() {
    emulate::wait_for_products(pending);
    emulate::sync_warp();
}
template <class T>
void settle(T &) {}

template <int TILES>
void multiply_rows(float (&sum)[TILES][4], unsigned long long a, unsigned long long b, bool add) {
    emulate::begin_product([&sum, a, b, add] {
        const int lane = thread_index() % 32, first = thread_index() % 128 / 32 * 16;
        float left[2][16], right[16];
        for (int half = 0; half < 2; half++)
            emulate::operand_row(left[half], a, first + lane / 4 + 8 * half);
        for (int n = 0; n < TILES; n++)
            for (int c = 0; c < 2; c++) {
                emulate::operand_row(right, b, 8 * n + 2 * (lane % 4) + c);
                for (int half = 0; half < 2; half++) {
                    float &to = sum[n][2 * half + c];
                    if (!add) to = 0.0f;
                    for (int k = 0; k < 16; k++) to += left[half][k] * right[k];
                }
            }
    });
}

template <int TILES>
void multiply_panels(float (&sum)[TILES][4], const unsigned (&a)[4], unsigned long long b) {
    emulate::begin_product([&sum, &a, b] {
        const unsigned *all = reinterpret_cast<const unsigned *>(emulate::exchange(a, sizeof a));
        const int lane = thread_index() % 32;
        float left[2][16];
        for (int half = 0; half < 2; half++)
            for (int k = 0; k < 16; k++) {
                const unsigned word = all[4 * (lane / 4 * 4 + k % 8 / 2) + half + 2 * (k / 8)];
                left[half][k] = emulate::widen_half((unsigned short)(k % 2 ? word >> 16 : word));
            }
        for (int n = 0; n < TILES; n++)
            for (int k = 0; k < 16; k++) {
                const unsigned short *right = emulate::operand_unit(b, k, 8 * n) + 2 * (lane % 4);
                for (int c = 0; c < 4; c++)
                    sum[n][c] += left[c / 2][k] * emulate::widen_half(right[c % 2]);
            }
    });
}
