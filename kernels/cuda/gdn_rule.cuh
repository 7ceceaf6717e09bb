// The gated delta rule for a block of rows on top of a state, without changing the state:
//   u_i = beta_i (v_i - e^G_i S^T k_i - sum_j e^(G_i - G_j) (k_j . k_i) u_j)   over ancestors j,
//   o_i = e^G_i S^T q_i + sum_j e^(G_i - G_j) (k_j . q_i) u_j                  over ancestors, self.
// One block of threads takes one value head and GDN_COLUMNS columns of its state. Everything is f32.
#pragma once
#include "device.cuh"
#include "params.h"

// Shapes for at most ROWS rows. The left operand stacks the keys over the queries.
template <int ROWS>
struct Shape {
    static constexpr int THREADS = ROWS == 64 ? 256 : 128;
    static constexpr int STAGES = ROWS == 64 ? 2 : 4;
    static constexpr int DEPTH = 32;                    // key dimensions per stage
    static constexpr int STEPS = GDN_DIM / DEPTH;
    static constexpr int LINE = DEPTH + 4;              // padded row: conflict-free 16-byte loads
    static constexpr int TALL = THREADS / 8;            // threads down the left rows, 8 across
    static constexpr int TILE = 2 * ROWS / TALL;        // left rows of a thread
    static constexpr int ACROSS = ROWS / 8;             // key columns of a thread
};

template <int ROWS>
struct Gram {
    float keys[ROWS][ROWS + 1];     // decayed k_j . k_i, ancestors; the diagonal is not used
    float queries[ROWS][ROWS + 1];  // decayed k_j . q_i, ancestors and self
};

template <int ROWS>
struct RuleShared {
    float state[GDN_DIM][GDN_COLUMNS];
    union {
        float left[Shape<ROWS>::STAGES][2 * ROWS][Shape<ROWS>::LINE];
        Gram<ROWS> gram;
    };
    float u[ROWS][GDN_COLUMNS];
    float out[ROWS][GDN_COLUMNS];
    // decay[i][j]: sum of g from below j down to i, or from the state on for j = ROWS.
    float decay[ROWS][ROWS + 1];
    float g[ROWS];
    float beta[ROWS];
    int parent[ROWS];
    unsigned long long ancestors[ROWS];
};

// Rows `first..first + rows` of the pass as one value head sees them.
struct HeadRows {
    const GdnParams &p;
    int first;
    int rows;
    int head;
    int column;  // first of GDN_COLUMNS

    DEVICE long long key(int row) const {
        const int key_head = head / (p.value_heads / p.key_heads);
        return ((long long)(first + row) * p.key_heads + key_head) * GDN_DIM;
    }
    DEVICE long long gate(int row) const {
        return (long long)(first + row) * p.value_heads + head;
    }
    DEVICE long long value(int row) const { return gate(row) * GDN_DIM + column; }
};

// Starts copying DEPTH dimensions of keys and queries into a stage; rows beyond become zeros.
template <int ROWS>
DEVICE void copy_left(RuleShared<ROWS> &shared, const HeadRows &head, int step) {
    using S = Shape<ROWS>;
    constexpr int UNITS = S::DEPTH / 4;
#pragma unroll
    for (int i = thread_index(); i < 2 * ROWS * UNITS; i += S::THREADS) {
        const int line = i / UNITS, unit = i % UNITS, row = line % ROWS;
        const bool valid = row < head.rows;
        const float *from = line < ROWS ? head.p.k : head.p.q;
        const long long at = head.key(valid ? row : 0) + step * S::DEPTH + 4 * unit;
        copy_async(&shared.left[step % S::STAGES][line][4 * unit], from + at, valid);
    }
}

template <int THREADS, class Shared>
DEVICE void copy_state(Shared &shared, const float *state) {
    constexpr int UNITS = GDN_COLUMNS / 4;
#pragma unroll 4
    for (int i = thread_index(); i < GDN_DIM * UNITS; i += THREADS) {
        const int key = i / UNITS, unit = i % UNITS;
        copy_async(&shared.state[key][4 * unit], state + key * GDN_DIM + 4 * unit, true);
    }
}

// Sums of g along the paths, from the row back: never differences of two large sums. Thread `j` owns
// column `j`, so no thread waits for another.
template <int ROWS>
DEVICE void sum_decays(RuleShared<ROWS> &shared, int rows) {
    const int j = thread_index();
    if (j > ROWS) return;
    for (int i = 0; i < rows; i++) {
        const int parent = shared.parent[i];
        const bool below = j == ROWS || ((shared.ancestors[i] >> j) & 1);
        float sum = 0.0f;
        if (below && i != j) sum = (parent < 0 ? 0.0f : shared.decay[parent][j]) + shared.g[i];
        shared.decay[i][j] = sum;
    }
}

// Loads gates and ancestors of the rows. `tree` words come from the tables, a chain's are made.
template <int ROWS>
DEVICE void load_rows(RuleShared<ROWS> &shared, const HeadRows &head, bool tree) {
    const int i = thread_index();
    if (i < ROWS) {
        const bool valid = i < head.rows;
        shared.g[i] = valid ? head.p.g[head.gate(i)] : 0.0f;
        shared.beta[i] = valid ? head.p.beta[head.gate(i)] : 0.0f;
        unsigned long long word = valid ? ~0ull >> (63 - i) : 0;
        int parent = i - 1;
        if (tree && valid) {
            word = head.p.tables.row_ancestors[head.first + i];
            parent = head.p.tables.row_parent[head.first + i];
        }
        shared.ancestors[i] = word;
        shared.parent[i] = parent;
    }
}

// The products of keys and queries with the state and with the keys, then decays and masks. The
// first STAGES - 1 stages of the left operand and the state are already on their way. Leaves
// `u` = v - e^G S^T k, `out` = e^G S^T q and the two Gram matrices, after a barrier.
template <int ROWS>
DEVICE void multiply(RuleShared<ROWS> &shared, const HeadRows &head) {
    using S = Shape<ROWS>;
    const int down = thread_index() / 8, across = thread_index() % 8;
    float state[S::TILE][4] = {}, gram[S::TILE][S::ACROSS] = {};
    for (int step = 0; step < S::STEPS; step++) {
        wait_copies<S::STAGES - 2>();
        sync_block();
        if (step + S::STAGES - 1 < S::STEPS) copy_left(shared, head, step + S::STAGES - 1);
        commit_copies();
        const float(*left)[S::LINE] = shared.left[step % S::STAGES];
#pragma unroll
        for (int k = 0; k < S::DEPTH; k += 4) {
            Float4 a[S::TILE];
#pragma unroll
            for (int i = 0; i < S::TILE; i++) a[i] = load<Float4>(&left[down + S::TALL * i][k], 0);
#pragma unroll
            for (int d = 0; d < 4; d++) {
                const float *line = shared.state[step * S::DEPTH + k + d];
                const Float4 b = load<Float4>(line, across);
#pragma unroll
                for (int i = 0; i < S::TILE; i++)
#pragma unroll
                    for (int c = 0; c < 4; c++) state[i][c] += a[i].at[d] * b.at[c];
            }
#pragma unroll
            for (int j = 0; j < S::ACROSS; j++) {
                const Float4 b = load<Float4>(&left[across + 8 * j][k], 0);
#pragma unroll
                for (int i = 0; i < S::TILE; i++) {
                    // Ancestors come before: the columns behind the last of these rows stay zero.
                    if (8 * j >= (S::TALL * i) % ROWS + S::TALL) continue;
#pragma unroll
                    for (int d = 0; d < 4; d++) gram[i][j] += a[i].at[d] * b.at[d];
                }
            }
        }
    }
    sync_block();  // the Gram matrices lie over the stages
#pragma unroll
    for (int i = 0; i < S::TILE; i++) {
        const int line = down + S::TALL * i, row = line % ROWS;
        const bool key = line < ROWS, valid = row < head.rows;
        const float from_state = valid ? expf(shared.decay[row][ROWS]) : 0.0f;
        Float4 value = {};
        if (key && valid) value = load<Float4>(head.p.v + head.value(row), across);
        Float4 result;
#pragma unroll
        for (int c = 0; c < 4; c++)
            result.at[c] = key ? value.at[c] - from_state * state[i][c] : from_state * state[i][c];
        store<Float4>(key ? shared.u[row] : shared.out[row], across, result);
#pragma unroll
        for (int j = 0; j < S::ACROSS; j++) {
            const int column = across + 8 * j;
            const bool seen = valid && ((shared.ancestors[row] >> column) & 1);
            const float product = seen ? expf(shared.decay[row][column]) * gram[i][j] : 0.0f;
            (key ? shared.gram.keys : shared.gram.queries)[row][column] = product;
        }
    }
    sync_block();
}

// Forward substitution, then the outputs into `shared.out`; `shared.u` ends as the corrections.
template <int ROWS>
DEVICE void solve(RuleShared<ROWS> &shared, int rows) {
    constexpr int WARPS = Shape<ROWS>::THREADS / 32;
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    for (int j = 0; j + 1 < rows; j++) {
        const float u = shared.beta[j] * shared.u[j][lane];
        for (int i = j + 1 + (warp + WARPS - (j + 1) % WARPS) % WARPS; i < rows; i += WARPS)
            shared.u[i][lane] -= shared.gram.keys[i][j] * u;
        sync_block();
    }
    for (int i = warp; i < ROWS; i += WARPS) shared.u[i][lane] *= shared.beta[i];
    sync_block();
    for (int i = warp; i < rows; i += WARPS) {
        float out = shared.out[i][lane];
#pragma unroll 8
        for (int j = 0; j <= i; j++) out += shared.gram.queries[i][j] * shared.u[j][lane];
        shared.out[i][lane] = out;
    }
}
