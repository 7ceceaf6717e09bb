// Outputs and corrections of up to 64 rows per segment, chain or tree; no state is written:
//   u_i = beta_i (v_i - e^G_i S^T k_i - sum_j e^(G_i - G_j) (k_j . k_i) u_j)   over ancestors j,
//   o_i = e^G_i S^T q_i + sum_j e^(G_i - G_j) (k_j . q_i) u_j                  over ancestors, self.
// The products run on the tensor cores, each f32 factor as a sum of two bf16, so that they are exact to
// about 2^-16; the rest is f32, all of it for a single row. Grid: (columns, value heads, segments).
#include "device.cuh"
#include "params.h"

constexpr int COLUMNS = GDN_COLUMNS;
constexpr int STEPS = GDN_DIM / 16;

// Shapes for at most ROWS rows. The left operand stacks the keys over the queries in tiles of 16 rows;
// two warps share a tile, each with every other tile of columns.
template <int ROWS>
struct Shape {
    static constexpr int LEFT_TILES = 2 * ROWS / 16;
    static constexpr int SHARERS = 2;
    static constexpr int WARPS = LEFT_TILES * SHARERS;
    static constexpr int THREADS = 32 * WARPS;
    static constexpr int STATE_TILES = COLUMNS / 8 / SHARERS;  // of a warp
    static constexpr int GRAM_TILES = ROWS / 8 / SHARERS;      // of a warp
};

template <int ROWS>
struct VerifyShared {
    float state[GDN_DIM][COLUMNS + 4];  // padded, as `left`: fragments are loaded without conflicts
    union {
        float left[2 * ROWS][GDN_DIM + 8];
        struct {
            float keys[ROWS][ROWS + 4];     // [j][i]: decayed k_j . k_i, for ancestors j
            float queries[ROWS][ROWS + 4];  // [i][j]: decayed k_j . q_i, for ancestors and self
            float u[ROWS][COLUMNS + 8];
            float out[ROWS][COLUMNS + 8];
        };
    };
    float decay[2][ROWS];  // sum of g along the path: high and low part
    double sum[2][ROWS];
    int above[2][ROWS];
    float beta[ROWS];
    unsigned long long ancestors[ROWS];
};

// The rows of a segment as one value head sees them.
struct HeadRows {
    const GdnParams &p;
    int first;
    int rows;
    int head;
    int column;  // first of COLUMNS

    DEVICE long long key(int row) const {
        const int key_head = head / (p.value_heads / p.key_heads);
        return ((long long)(first + row) * p.key_heads + key_head) * GDN_DIM;
    }
    DEVICE long long gate(int row) const {
        return (long long)(first + row) * p.value_heads + head;
    }
    DEVICE long long value(int row) const { return gate(row) * GDN_DIM + column; }
};

// First column of a head's state: 128 bytes of each row are a block's.
DEVICE const float *state_of(const GdnParams &p, const Segment &segment, const HeadRows &head) {
    const long long slot_head = (long long)segment.slot * p.value_heads + head.head;
    return p.state + slot_head * GDN_DIM * GDN_DIM + head.column;
}

// Starts copying the state, keys and queries; rows beyond become zeros.
template <int ROWS>
DEVICE void copy_operands(VerifyShared<ROWS> &shared, const HeadRows &head, const float *state) {
    constexpr int THREADS = Shape<ROWS>::THREADS, UNITS = GDN_DIM / 4, ACROSS = COLUMNS / 4;
#pragma unroll
    for (int i = thread_index(); i < GDN_DIM * ACROSS; i += THREADS) {
        const int key = i / ACROSS, unit = i % ACROSS;
        copy_async(&shared.state[key][4 * unit], state + key * GDN_DIM + 4 * unit, true);
    }
#pragma unroll 8
    for (int i = thread_index(); i < 2 * ROWS * UNITS; i += THREADS) {
        const int line = i / UNITS, unit = i % UNITS, row = line % ROWS;
        const bool valid = row < head.rows;
        const float *from = line < ROWS ? head.p.k : head.p.q;
        copy_async(&shared.left[line][4 * unit], from + head.key(valid ? row : 0) + 4 * unit, valid);
    }
    commit_copies();
}

// Gates and ancestors of a row. The words of a tree come from the tables, a chain's are made.
struct Row {
    float g = 0.0f, beta = 0.0f;
    unsigned long long ancestors = 0;
    int parent = -1;

    DEVICE Row(const HeadRows &head, int i, bool tree) {
        if (i >= head.rows) return;
        g = head.p.g[head.gate(i)];
        beta = head.p.beta[head.gate(i)];
        ancestors = ~0ull >> (63 - i);
        parent = i - 1;
        if (!tree) return;
        ancestors = head.p.tables.row_ancestors[head.first + i];
        parent = head.p.tables.row_parent[head.first + i];
    }
};

// Sums of g from the state down to each row, a row per thread: a sum takes in the one of the row above
// what it covers, which doubles its reach. Kept in two parts, so that differences are exact enough.
template <int ROWS>
DEVICE void sum_decays(VerifyShared<ROWS> &shared, const Row &row) {
    const int i = thread_index();
    double sum = row.g;
    int above = row.parent, turn = 0;
    for (int reach = 1; reach < ROWS; reach *= 2) {
        if (i < ROWS) {
            shared.sum[turn][i] = sum;
            shared.above[turn][i] = above;
        }
        sync_block();
        if (above >= 0) {
            sum += shared.sum[turn][above];
            above = shared.above[turn][above];
        }
        turn = 1 - turn;
    }
    if (i >= ROWS) return;
    const float high = (float)sum;
    shared.decay[0][i] = high;
    shared.decay[1][i] = (float)(sum - high);
}

// Two values side by side as sums of two bf16.
struct Split {
    unsigned high, low;
};

DEVICE Split split(float x, float y) {
    const unsigned high = pack(x, y);
    return Split{high, pack(x - low_half(high), y - high_half(high))};
}

DEVICE Split split_at(const float *pair) {
    const Float2 x = load<Float2>(pair, 0);
    return split(x.at[0], x.at[1]);
}

// Operands of a product: 16 x 16 on the left, 16 x 8 on the right.
struct Left {
    unsigned high[4], low[4];
};
struct Right {
    Split at[2];
};

// sums += a b, part by part: products that follow each other belong to different sums.
template <int COUNT>
DEVICE void accumulate(float (*sums)[4], const Left &a, const Right *b) {
#pragma unroll
    for (int n = 0; n < COUNT; n++) multiply_add(sums[n], a.low, b[n].at[0].high, b[n].at[1].high);
#pragma unroll
    for (int n = 0; n < COUNT; n++) multiply_add(sums[n], a.high, b[n].at[0].low, b[n].at[1].low);
#pragma unroll
    for (int n = 0; n < COUNT; n++) multiply_add(sums[n], a.high, b[n].at[0].high, b[n].at[1].high);
}

// A warp's part of the products: a lane holds rows `lane / 4` and 8 below of its 16, columns
// `2 (lane % 4)` and the next of every tile of 8.
template <int ROWS>
struct Products {
    float state[Shape<ROWS>::STATE_TILES][4];
    float gram[Shape<ROWS>::GRAM_TILES][4];
};

template <int ROWS>
DEVICE void multiply(Products<ROWS> &products, VerifyShared<ROWS> &shared, int left_tile, int sharer) {
    using S = Shape<ROWS>;
    const int lane = thread_index() % 32, down = lane / 4, across = 2 * (lane % 4);
#pragma unroll 2
    for (int step = 0; step < STEPS; step++) {
        const int depth = 16 * step + across;
        Left a;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = 16 * left_tile + down + 8 * (i % 2);
            const Split x = split_at(&shared.left[row][depth + 8 * (i / 2)]);
            a.high[i] = x.high;
            a.low[i] = x.low;
        }
        Right b[S::STATE_TILES];
#pragma unroll
        for (int n = 0; n < S::STATE_TILES; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int column = 8 * (n * S::SHARERS + sharer) + down;
                b[n].at[i] = split(shared.state[depth + 8 * i][column],
                                   shared.state[depth + 8 * i + 1][column]);
            }
        accumulate<S::STATE_TILES>(products.state, a, b);
        // Ancestors come before: tiles behind the last of these rows stay zero.
        constexpr int PAIR = S::GRAM_TILES < 2 ? 1 : 2;
#pragma unroll
        for (int n = 0; n < S::GRAM_TILES; n += PAIR) {
            if ((n * S::SHARERS) / 2 > left_tile % (ROWS / 16)) continue;
            Right keys[PAIR];
#pragma unroll
            for (int m = 0; m < PAIR; m++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int row = 8 * ((n + m) * S::SHARERS + sharer) + down;
                    keys[m].at[i] = split_at(&shared.left[row][depth + 8 * i]);
                }
            accumulate<PAIR>(products.gram + n, a, keys);
        }
    }
}

// Decays and masks. Leaves `u` = v - e^G S^T k, `out` = e^G S^T q and the two Gram matrices.
template <int ROWS>
DEVICE void place(const Products<ROWS> &products, VerifyShared<ROWS> &shared, const HeadRows &head,
                  const Float2 (&values)[2][Shape<ROWS>::STATE_TILES], int left_tile, int sharer) {
    using S = Shape<ROWS>;
    const int lane = thread_index() % 32, across = 2 * (lane % 4);
    const bool key = left_tile < ROWS / 16;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int i = 16 * (left_tile % (ROWS / 16)) + lane / 4 + 8 * half;
        const bool valid = i < head.rows;
        const float high = shared.decay[0][i], low = shared.decay[1][i];
        const float from_state = valid ? expf(high + low) : 0.0f;
#pragma unroll
        for (int n = 0; n < S::STATE_TILES; n++) {
            const int column = 8 * (n * S::SHARERS + sharer) + across;
            Float2 x;
#pragma unroll
            for (int c = 0; c < 2; c++) {
                x.at[c] = from_state * products.state[n][2 * half + c];
                if (key) x.at[c] = values[half][n].at[c] - x.at[c];
            }
            store<Float2>((key ? shared.u : shared.out)[i] + column, 0, x);
        }
        const unsigned long long ancestors = shared.ancestors[i];
#pragma unroll
        for (int n = 0; n < S::GRAM_TILES; n++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const int j = 8 * (n * S::SHARERS + sharer) + across + c;
                const bool seen = valid && ((ancestors >> j) & 1);
                const float decay = (high - shared.decay[0][j]) + (low - shared.decay[1][j]);
                const float product = seen ? expf(decay) * products.gram[n][2 * half + c] : 0.0f;
                if (key)
                    shared.keys[j][i] = product;
                else
                    shared.queries[i][j] = product;
            }
    }
}

// Forward substitution by one warp, a column per lane: `shared.u` ends as the corrections. They are
// stored at the end, so that no load waits for a store.
template <int ROWS>
DEVICE void solve(VerifyShared<ROWS> &shared, int rows) {
    const int lane = thread_index() % 32;
    float u[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) u[i] = shared.u[i][lane];
#pragma unroll
    for (int j = 0; j < ROWS; j++) {
        if (j % 16 == 0 && j >= rows) break;
        u[j] *= shared.beta[j];
#pragma unroll
        for (int unit = (j + 1) / 4; unit < ROWS / 4; unit++) {
            const Float4 keys = load<Float4>(shared.keys[j], unit);
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (4 * unit + c > j) u[4 * unit + c] -= keys.at[c] * u[j];
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) shared.u[i][lane] = u[i];
}

template <int ROWS>
DEVICE void write_out(VerifyShared<ROWS> &shared, const HeadRows &head) {
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    float u[ROWS];
#pragma unroll
    for (int j = 0; j < ROWS; j++) u[j] = shared.u[j][lane];
    for (int i = warp; i < head.rows; i += Shape<ROWS>::WARPS) {
        // Beyond the row itself all queries are zero.
        float parts[4] = {shared.out[i][lane], 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int unit = 0; unit < ROWS / 4; unit++) {
            const Float4 queries = load<Float4>(shared.queries[i], unit);
#pragma unroll
            for (int c = 0; c < 4; c++) parts[c] += queries.at[c] * u[4 * unit + c];
        }
        const float out = (parts[0] + parts[1]) + (parts[2] + parts[3]);
        head.p.u[head.value(i) + lane] = shared.u[i][lane];
        store<bf16>(head.p.out, head.value(i) + lane, to_bf16(out));
    }
}

template <int ROWS>
DEVICE void gdn_verify(const GdnParams &p) {
    using S = Shape<ROWS>;
    VerifyShared<ROWS> &shared = shared_as<VerifyShared<ROWS>>();
    // Tables are copied ahead of all kernels of a pass.
    const Segment segment = p.tables.segments[block_z()];
    const HeadRows head = {p, segment.first, segment.rows, block_y(), block_x() * COLUMNS};
    const float *state = state_of(p, segment, head);
    if (thread_index() < GDN_DIM) fetch_ahead(state + thread_index() * GDN_DIM);
    wait_for_earlier();
    if (head.rows == 0) return;
    const Row row(head, thread_index(), segment.tree != 0);
    copy_operands(shared, head, state);
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    const int left_tile = warp / S::SHARERS, sharer = warp % S::SHARERS;
    Float2 values[2][S::STATE_TILES] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = 16 * left_tile + lane / 4 + 8 * half;
        if (row >= ROWS || row >= head.rows) continue;
#pragma unroll
        for (int n = 0; n < S::STATE_TILES; n++) {
            const int column = 8 * (n * S::SHARERS + sharer) + 2 * (lane % 4);
            values[half][n] = load<Float2>(p.v + head.value(row) + column, 0);
        }
    }
    if (thread_index() < ROWS) {
        shared.beta[thread_index()] = row.beta;
        shared.ancestors[thread_index()] = row.ancestors;
    }
    sum_decays(shared, row);
    wait_copies<0>();
    sync_block();
    Products<ROWS> products = {};
    multiply(products, shared, left_tile, sharer);
    sync_block();  // keys and queries make room
    place(products, shared, head, values, left_tile, sharer);
    sync_block();
    if (warp == 0) solve(shared, head.rows);
    sync_block();
    write_out(shared, head);
}

// A single row per segment, in f32: a warp takes a quarter of the key dimensions, a lane a column.
constexpr int QUARTERS = 4;
constexpr int QUARTER = GDN_DIM / QUARTERS;
static_assert(COLUMNS == 32, "a lane per column");

struct SingleShared {
    float k[GDN_DIM];
    float q[GDN_DIM];
    float sums[QUARTERS][2][COLUMNS];  // parts of S^T k and S^T q
};

DEVICE void gdn_verify_single(const GdnParams &p) {
    SingleShared &shared = shared_as<SingleShared>();
    const Segment segment = p.tables.segments[block_z()];
    const HeadRows head = {p, segment.first, segment.rows, block_y(), block_x() * COLUMNS};
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    const float *from = state_of(p, segment, head) + warp * QUARTER * GDN_DIM;
    fetch_ahead(from + lane * GDN_DIM);
    wait_for_earlier();
    if (head.rows == 0) return;
    float state[QUARTER];
#pragma unroll
    for (int i = 0; i < QUARTER; i++) state[i] = from[i * GDN_DIM + lane];
    shared.k[thread_index()] = p.k[head.key(0) + thread_index()];
    shared.q[thread_index()] = p.q[head.key(0) + thread_index()];
    const float decay = expf(p.g[head.gate(0)]), beta = p.beta[head.gate(0)];
    const float value = p.v[head.value(0) + lane];
    sync_block();
    float from_k = 0.0f, from_q = 0.0f, both = 0.0f;
#pragma unroll
    for (int i = 0; i < QUARTER; i++) {
        from_k += shared.k[warp * QUARTER + i] * state[i];
        from_q += shared.q[warp * QUARTER + i] * state[i];
    }
#pragma unroll
    for (int i = lane; i < GDN_DIM; i += 32) both += shared.k[i] * shared.q[i];
    both = warp_sum(both);
    shared.sums[warp][0][lane] = from_k;
    shared.sums[warp][1][lane] = from_q;
    sync_block();
    if (warp > 0) return;
    from_k = from_q = 0.0f;
#pragma unroll
    for (int i = 0; i < QUARTERS; i++) {
        from_k += shared.sums[i][0][lane];
        from_q += shared.sums[i][1][lane];
    }
    const float u = beta * (value - decay * from_k);
    p.u[head.value(0) + lane] = u;
    store<bf16>(p.out, head.value(0) + lane, to_bf16(decay * from_q + both * u));
}

#define VERIFY(rows)                                                                               \
    KERNEL_AHEAD(gdn_verify_##rows, Shape<rows>::THREADS, 1, sizeof(VerifyShared<rows>), GdnParams, \
                 gdn_verify<rows>)

KERNEL_AHEAD(gdn_verify_1, 32 * QUARTERS, 1, sizeof(SingleShared), GdnParams, gdn_verify_single)
VERIFY(16)
VERIFY(32)
VERIFY(64)
