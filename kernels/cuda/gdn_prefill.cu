// A prompt in chunks of 64 rows on the tensor cores: the rule of gdn_rule.cuh for a chain, then the
// chunk is folded into the state, which stays in registers from the first chunk to the last. Every
// f32 factor is a sum of two bf16, so products are exact to about 2^-16.
// Grid: (columns, value heads, segments); 8 warps.
#include "device.cuh"
#include "params.h"

constexpr int THREADS = 256;
constexpr int ROWS = 64;
constexpr int COLUMNS = PREFILL_COLUMNS;
constexpr int BLOCKS = ROWS / 16;             // blocks of 16 rows
constexpr int TILES = COLUMNS / 8;            // tiles of 8 columns: one per warp in the solution
constexpr int BELOW = 16 * 15 / 2;            // values below the diagonal of a block
static_assert(ROWS / 8 == TILES, "one set of right operands serves both products");
static_assert(TILES == THREADS / 32, "a warp solves one tile of columns");

// The high and the low part of a matrix.
template <int HEIGHT, int WIDTH>
struct Halves {
    bf16 at[2][HEIGHT][WIDTH];
};

struct PrefillShared {
    union {
        Halves<ROWS, GDN_DIM> q;
        struct {
            Halves<ROWS, ROWS> keys;     // -beta_i D_ij k_j . k_i; inverses on the diagonal
            Halves<ROWS, ROWS> queries;  // D_ij k_j . q_i
        } gram;
    };
    Halves<ROWS, GDN_DIM> k;
    union {
        Halves<GDN_DIM, COLUMNS> state;
        struct {
            union {
                float right[ROWS][COLUMNS];  // beta (v - e^G S^T k)
                Halves<ROWS, COLUMNS> scaled;  // e^(G - G_j) u_j
            };
            Halves<ROWS, COLUMNS> u;
        };
    };
    float below[BLOCKS][BELOW];
    float beta[ROWS];
    float decay[2][ROWS];  // G_i, sum of g from the first row on: high and low part
};

// Sixteen-byte units are swizzled by the row, so that eight rows at one unit hit all banks.
template <int WIDTH>
DEVICE bf16 *unit_at(bf16 (*lines)[WIDTH], int row, int unit) {
    return lines[row] + 8 * (unit ^ (row & 7));
}

// The same for pairs of floats, rows of four.
DEVICE float *right_at(PrefillShared &shared, int row, int column) {
    return shared.right[row] + (column ^ 8 * (row & 3));
}

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

DEVICE void accumulate(Tile &sum, const Left &a, const Right &b) {
    multiply_add(sum.at, a.low, b.high[0], b.high[1]);
    multiply_add(sum.at, a.high, b.low[0], b.low[1]);
    multiply_add(sum.at, a.high, b.high[0], b.high[1]);
}

// As `accumulate` for the first `tiles` of COUNT tiles, part by part: products that follow each other
// belong to different sums, so none waits for the one before.
template <int COUNT>
DEVICE void accumulate_all(Tile (&sums)[COUNT], const Left &a, const Right (&b)[COUNT], int tiles) {
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

// A chunk as one value head sees it.
struct Chunk {
    const GdnParams &p;
    int first;
    int rows;
    int head;
    int column;  // first of COLUMNS
    int lane;

    DEVICE long long key(int row) const {
        const int key_head = head / (p.value_heads / p.key_heads);
        return ((long long)(first + row) * p.key_heads + key_head) * GDN_DIM;
    }
    DEVICE long long gate(int row) const {
        return (long long)(first + row) * p.value_heads + head;
    }
    DEVICE long long value(int row) const { return gate(row) * GDN_DIM + column; }
};

// Keys and queries: a warp takes every eighth row, a lane four of its columns; rows beyond the chunk
// become zeros.
DEVICE void load_rows(PrefillShared &shared, const Chunk &chunk) {
    constexpr int WARPS = THREADS / 32;
    const int warp = thread_index() / 32, column = 4 * chunk.lane;
    Float4 x[2][ROWS / WARPS];
#pragma unroll
    for (int i = 0; i < ROWS / WARPS; i++) {
        const int row = warp + WARPS * i;
        x[0][i] = x[1][i] = Float4{};
        if (row >= chunk.rows) continue;
        x[0][i] = load<Float4>(chunk.p.k + chunk.key(row) + column, 0);
        x[1][i] = load<Float4>(chunk.p.q + chunk.key(row) + column, 0);
    }
#pragma unroll
    for (int i = 0; i < ROWS / WARPS; i++) {
        const int row = warp + WARPS * i;
#pragma unroll
        for (int c = 0; c < 4; c += 2) {
            store_pair(shared.k, row, column + c, x[0][i].at[c], x[0][i].at[c + 1]);
            store_pair(shared.q, row, column + c, x[1][i].at[c], x[1][i].at[c + 1]);
        }
    }
}

// Values of a warp's 16 rows, as a lane needs them.
struct Values {
    Float2 at[2][TILES];
};

DEVICE void load_values(Values &values, const Chunk &chunk, int block) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = 16 * block + chunk.lane / 4 + 8 * half;
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            const int column = 8 * n + 2 * (chunk.lane % 4);
            values.at[half][n] = Float2{};
            if (row < chunk.rows)
                values.at[half][n] = load<Float2>(chunk.p.v + chunk.value(row) + column, 0);
        }
    }
}

// Gates of the chunk and sums of log decays, by one warp, two rows to a lane. The sums are kept in
// two parts, so that differences of large sums are exact enough.
DEVICE void load_gates(PrefillShared &shared, const Chunk &chunk) {
    const int lane = chunk.lane;
    double g[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = 2 * lane + i;
        const bool valid = row < chunk.rows;
        g[i] = valid ? chunk.p.g[chunk.gate(row)] : 0.0f;
        shared.beta[row] = valid ? chunk.p.beta[chunk.gate(row)] : 0.0f;
    }
    double before = 0.0, total = g[0] + g[1];
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
        const float high = (float)total, low = (float)(total - high);
        const double other = (double)shuffle_xor(high, lanes) + (double)shuffle_xor(low, lanes);
        if (lane & lanes) before += other;
        total += other;
    }
    const double sums[2] = {before + g[0], before + g[0] + g[1]};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float high = (float)sums[i];
        shared.decay[0][2 * lane + i] = high;
        shared.decay[1][2 * lane + i] = (float)(sums[i] - high);
    }
}

// e^(G_i - G_j), and e^G_i.
DEVICE float decay_between(const PrefillShared &shared, int i, int j) {
    return expf((shared.decay[0][i] - shared.decay[0][j]) +
                (shared.decay[1][i] - shared.decay[1][j]));
}
DEVICE float decay_from_state(const PrefillShared &shared, int i) {
    return expf(shared.decay[0][i] + shared.decay[1][i]);
}

// Products of a warp's 16 rows (keys or queries) with the state and with the keys.
struct Products {
    Tile state[TILES];
    Tile gram[ROWS / 8];
};

DEVICE void multiply_rows(Products &products, PrefillShared &shared, bool keys, int block,
                          int lane) {
#pragma unroll 1
    for (int step = 0; step < GDN_DIM / 16; step++) {
        const Left a = keys ? left_of(shared.k, 16 * block, step, lane)
                            : left_of(shared.q, 16 * block, step, lane);
        Right b[TILES];
#pragma unroll
        for (int n = 0; n < TILES; n++) b[n] = right_of(shared.state, step, n, lane);
        accumulate_all(products.state, a, b, TILES);
        const int seen = 2 * (block + 1);
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++)
            if (n < seen) b[n] = right_of_transposed(shared.k, step, n, lane);
        accumulate_all(products.gram, a, b, seen);
    }
}

// Decays and masks. Key rows leave their right sides and the system in shared memory, query rows
// keep what comes from the state.
DEVICE void place(Products &products, PrefillShared &shared, const Values &values, bool keys,
                  int block, int lane) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int i = 16 * block + lane / 4 + 8 * half;
        const float from_state = decay_from_state(shared, i), beta = shared.beta[i];
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++) {
            if (n / 2 > block) continue;
            const int column = 8 * n + 2 * (lane % 4);
            float pair[2];
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const int j = column + c;
                const bool seen = keys ? j < i : j <= i;
                float value = seen ? decay_between(shared, i, j) * products.gram[n].at[2 * half + c]
                                   : 0.0f;
                if (keys) value *= -beta;
                if (keys && seen && n / 2 == block) {
                    const int down = i % 16;
                    shared.below[block][down * (down - 1) / 2 + j % 16] = -value;
                }
                pair[c] = value;
            }
            store_pair(keys ? shared.gram.keys : shared.gram.queries, i, column, pair[0], pair[1]);
        }
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            const int column = 8 * n + 2 * (lane % 4);
            Float2 right;
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float &value = products.state[n].at[2 * half + c];
                value *= from_state;
                right.at[c] = beta * (values.at[half][n].at[c] - value);
            }
            if (keys) store<Float2>(right_at(shared, i, column), 0, right);
        }
    }
}

// Inverses of the four unit lower triangular blocks on the diagonal: two warps, a column per lane.
DEVICE void invert_diagonal(PrefillShared &shared) {
    const int block = thread_index() / 16, column = thread_index() % 16;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; i++) {
        x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
        for (int j = 0; j < i; j++) x[i] -= shared.below[block][i * (i - 1) / 2 + j] * x[j];
    }
    // All at the end, so that no load waits for a store.
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const bf16 high = to_bf16(x[i]);
        const int row = 16 * block + i, at = 16 * block + column;
        unit_at(shared.gram.keys.at[0], row, at / 8)[at % 8] = high;
        unit_at(shared.gram.keys.at[1], row, at / 8)[at % 8] = to_bf16(x[i] - to_float(high));
    }
}

DEVICE void store_tile(Halves<ROWS, COLUMNS> &to, int block, int tile, const Tile &x, int lane) {
    const int column = 8 * tile + 2 * (lane % 4);
    store_pair(to, 16 * block + lane / 4, column, x.at[0], x.at[1]);
    store_pair(to, 16 * block + lane / 4 + 8, column, x.at[2], x.at[3]);
}

// Block by block: u_b = inverse_b (right_b + sum of keys_bc u_c over c < b). Columns do not mix, so
// a warp solves its own without waiting for another.
DEVICE void solve(Tile (&u)[BLOCKS], PrefillShared &shared, int lane) {
    const int tile = thread_index() / 32;
    const int column = 8 * tile + 2 * (lane % 4);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        const float *upper = right_at(shared, 16 * b + lane / 4, column);
        const float *lower = right_at(shared, 16 * b + lane / 4 + 8, column);
        Tile right = {{upper[0], upper[1], lower[0], lower[1]}};
#pragma unroll
        for (int c = 0; c < b; c++)
            accumulate(right, left_of(shared.gram.keys, 16 * b, c, lane), right_of(shared.u, c, tile, lane));
        store_tile(shared.u, b, tile, right, lane);
        sync_warp();
        u[b] = Tile{};
        accumulate(u[b], left_of(shared.gram.keys, 16 * b, b, lane), right_of(shared.u, b, tile, lane));
        sync_warp();
        store_tile(shared.u, b, tile, u[b], lane);
        sync_warp();
    }
}

// Outputs of a warp's 16 query rows.
DEVICE void write_out(Products &products, PrefillShared &shared, const Chunk &chunk, int block) {
    const int lane = chunk.lane;
#pragma unroll 1
    for (int step = 0; step <= block; step++) {
        const Left a = left_of(shared.gram.queries, 16 * block, step, lane);
        Right b[TILES];
#pragma unroll
        for (int n = 0; n < TILES; n++) b[n] = right_of(shared.u, step, n, lane);
        accumulate_all(products.state, a, b, TILES);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = 16 * block + lane / 4 + 8 * half;
        if (row >= chunk.rows) continue;
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            const long long at = chunk.value(row) + 8 * n + 2 * (lane % 4);
            const Tile &x = products.state[n];
            store<unsigned>(chunk.p.out, at / 2, pack(x.at[2 * half], x.at[2 * half + 1]));
        }
    }
}

// A warp's 16 key dimensions of the state: e^G S + sum_j k_j (e^(G - G_j) u_j)^T.
DEVICE void fold(Tile (&state)[TILES], PrefillShared &shared, int last, int lane) {
    const int warp = thread_index() / 32;
    const float from_state = decay_from_state(shared, last);
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) state[n].at[c] *= from_state;
#pragma unroll 1
    for (int step = 0; step < BLOCKS; step++) {
        const Left a = left_of_transposed(shared.k, 16 * warp, step, lane);
        Right b[TILES];
#pragma unroll
        for (int n = 0; n < TILES; n++) b[n] = right_of(shared.scaled, step, n, lane);
        accumulate_all(state, a, b, TILES);
    }
}

DEVICE void prefill_chunk(Tile (&state)[TILES], PrefillShared &shared, const Chunk &chunk) {
    const int warp = thread_index() / 32, lane = chunk.lane;
    const bool keys = warp < BLOCKS;
    const int block = warp % BLOCKS, last = chunk.rows - 1;
    load_rows(shared, chunk);
    Values values;
    if (keys) load_values(values, chunk, block);
    if (warp == 0) load_gates(shared, chunk);
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        const int column = 8 * n + 2 * (lane % 4), key = 16 * warp + lane / 4;
        store_pair(shared.state, key, column, state[n].at[0], state[n].at[1]);
        store_pair(shared.state, key + 8, column, state[n].at[2], state[n].at[3]);
    }
    sync_block();
    Products products = {};
    multiply_rows(products, shared, keys, block, lane);
    sync_block();  // queries and state make room
    place(products, shared, values, keys, block, lane);
    sync_block();
    if (warp < 2) invert_diagonal(shared);
    sync_block();
    Tile u[BLOCKS];
    solve(u, shared, lane);
    sync_block();  // the right sides make room
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        const int row = 16 * b + lane / 4;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int at = min_of(row + 8 * (c / 2), last);  // beyond the last, u is zero
            u[b].at[c] *= decay_between(shared, last, at);
        }
        store_tile(shared.scaled, b, warp, u[b], lane);
    }
    if (!keys) write_out(products, shared, chunk, block);
    sync_block();
    fold(state, shared, last, lane);
    sync_block();
}

DEVICE void gdn_prefill(const GdnParams &p) {
    PrefillShared &shared = shared_as<PrefillShared>();
    const Segment segment = p.tables.segments[block_z()];
    if (segment.rows == 0) return;
    const int value_head = block_y(), first_column = block_x() * COLUMNS;
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    const long long slot_head = (long long)segment.slot * p.value_heads + value_head;
    float *own = p.state + (slot_head * GDN_DIM + 16 * warp + lane / 4) * GDN_DIM + first_column +
                 2 * (lane % 4);
    Tile state[TILES];
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) state[n].at[c] = own[(c / 2 * 8) * GDN_DIM + 8 * n + c % 2];
    for (int done = 0; done < segment.rows; done += ROWS) {
        // Opaque, so that addresses are computed anew instead of being kept in registers.
        const Chunk chunk = {p, segment.first + done, min_of(ROWS, segment.rows - done), value_head,
                             first_column, opaque(lane)};
        prefill_chunk(state, shared, chunk);
    }
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) own[(c / 2 * 8) * GDN_DIM + 8 * n + c % 2] = state[n].at[c];
}

KERNEL(gdn_prefill_chunks, THREADS, 1, sizeof(PrefillShared), GdnParams, gdn_prefill)
