// The rows of a segment as a value head of a gated-delta-net layer sees them, and their decays.
#pragma once
#include "device.cuh"
#include "params.h"

// Rows, and COLUMNS of the head's state and values from `column` on.
struct HeadRows {
    const GdnParams &p;
    int first;
    int rows;
    int head;
    int column;

    DEVICE long long key(int row) const {
        const int key_head = head / (p.value_heads / p.key_heads);
        return ((long long)(first + row) * p.key_heads + key_head) * GDN_DIM;
    }
    DEVICE long long gate(int row) const {
        return (long long)(first + row) * p.value_heads + head;
    }
    DEVICE long long value(int row) const { return gate(row) * GDN_DIM + column; }
};

// First column of a head's state.
DEVICE const float *state_of(const GdnParams &p, const Segment &segment, const HeadRows &head) {
    const long long slot_head = (long long)segment.slot * p.value_heads + head.head;
    return p.state + slot_head * GDN_DIM * GDN_DIM + head.column;
}

// Gates and ancestors of the rows of a lane. The words of a tree come from the tables, a chain's are made.
template <int ROWS>
struct LaneRows {
    static constexpr int MINE = ROWS <= 32 ? 1 : ROWS / 32;
    float g[MINE], beta[MINE];
    int above[MINE];
    unsigned long long ancestors[MINE];

    // Of the first `count` rows; of others there is nothing.
    DEVICE LaneRows(const HeadRows &head, bool tree, int count) {
#pragma unroll
        for (int n = 0; n < MINE; n++) {
            const int i = thread_index() % 32 + 32 * n;
            g[n] = beta[n] = 0.0f;
            above[n] = -1;
            ancestors[n] = 0;
            if (i >= count) continue;
            g[n] = head.p.g[head.gate(i)];
            beta[n] = head.p.beta[head.gate(i)];
            above[n] = tree ? head.p.tables.row_parent[head.first + i] : i - 1;
            ancestors[n] = tree ? head.p.tables.row_ancestors[head.first + i] : ~0ull >> (63 - i);
        }
    }
};

// The same of all rows, in shared memory.
template <int ROWS>
struct Gates {
    float decay[2][ROWS];  // sum of g from the state down to the row, G: high and low part
    float beta[ROWS];
    unsigned long long ancestors[ROWS];  // and the row itself
};

// Sums of g by one warp: a sum takes in the one of the row above what it covers, which doubles its reach. They
// are kept in two parts, so that differences are exact enough.
template <int ROWS>
DEVICE void sum_decays(Gates<ROWS> &gates, const LaneRows<ROWS> &rows) {
    constexpr int MINE = LaneRows<ROWS>::MINE;
    const int lane = thread_index() % 32;
    double sum[MINE];
    int above[MINE];
#pragma unroll
    for (int n = 0; n < MINE; n++) {
        sum[n] = rows.g[n];
        above[n] = rows.above[n];
    }
#pragma unroll 1
    for (int reach = 1; reach < ROWS; reach *= 2) {
        double more[MINE];
        int next[MINE];
#pragma unroll
        for (int n = 0; n < MINE; n++) {
            const int from = max_of(above[n], 0);
#pragma unroll
            for (int m = 0; m < MINE; m++) {
                const double x = shuffle(sum[m], from % 32);
                const int y = shuffle(above[m], from % 32);
                if (m == 0 || from / 32 == m) {
                    more[n] = x;
                    next[n] = y;
                }
            }
        }
#pragma unroll
        for (int n = 0; n < MINE; n++) {
            if (above[n] < 0) continue;
            sum[n] += more[n];
            above[n] = next[n];
        }
    }
#pragma unroll
    for (int n = 0; n < MINE; n++) {
        const int i = lane + 32 * n;
        if (i >= ROWS) continue;
        const float high = (float)sum[n];
        gates.decay[0][i] = high;
        gates.decay[1][i] = (float)(sum[n] - high);
        gates.beta[i] = rows.beta[n];
        gates.ancestors[i] = rows.ancestors[n];
    }
}

// e^G.
template <int ROWS>
DEVICE float decay_from_state(const Gates<ROWS> &gates, int i) {
    return fast_exp2(LOG2_E * (gates.decay[0][i] + gates.decay[1][i]));
}

// e^(G_i - G_j) where row j is an ancestor of row i or that itself, else 0.
template <int ROWS>
DEVICE float decay_between(const Gates<ROWS> &gates, int i, int j) {
    const float decay = (gates.decay[0][i] - gates.decay[0][j]) + (gates.decay[1][i] - gates.decay[1][j]);
    return (gates.ancestors[i] >> j) & 1 ? fast_exp2(LOG2_E * decay) : 0.0f;
}
