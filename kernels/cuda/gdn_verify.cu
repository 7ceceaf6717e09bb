// Outputs and corrections of up to 16 rows per segment, chain or tree; no state is written:
//   u_i = beta_i (v_i - e^G_i S^T k_i - sum_j e^(G_i - G_j) (k_j . k_i) u_j)   over ancestors j,
//   o_i = e^G_i S^T q_i + sum_j e^(G_i - G_j) (k_j . q_i) u_j                  over ancestors, self.
// The products run on the tensor cores, each f32 factor as a sum of two bf16, so that they are exact to
// about 2^-16; the rest is f32, all of it for a single row. (gdn_verify_many.cu takes more rows.)
// Grid: (columns, value heads, segments).
#include "gdn_rows.cuh"

constexpr int COLUMNS = GDN_COLUMNS;
constexpr int STEPS = GDN_DIM / 16;

// Shapes for at most ROWS rows. The left operand stacks the keys over the queries in tiles of 16 rows. The
// warps of such a tile share its tiles of 8 columns, of the state and of the keys: two by turns or, where
// blocks are so few that more warps find room, DEPTHS by parts of the key dimensions, whose sums they exchange.
template <int ROWS_, int DEPTHS_>
struct Shape {
    static constexpr int ROWS = ROWS_, LEFT_TILES = 2 * ROWS / 16;
    static constexpr int DEPTHS = DEPTHS_, SHARERS = DEPTHS == 1 ? 2 : 1, TURNS = DEPTHS * SHARERS;
    static constexpr int WARPS = LEFT_TILES * TURNS, THREADS = 32 * WARPS;
    static constexpr int STATE_TILES = COLUMNS / 8, GRAM_TILES = ROWS / 8;
    static constexpr int TILES = STATE_TILES + GRAM_TILES;
    static constexpr int MINE = STATE_TILES / TURNS;  // of the state's, in the end a warp's
};

// Parts of the sums, as lanes hold them.
template <class S, bool SOME>
struct alignas(16) Parts {
    Float4 at[S::LEFT_TILES][S::TILES][S::DEPTHS][32];
};
template <class S>
struct alignas(16) Parts<S, false> {};

template <class S>
struct VerifyShared {
    static constexpr int ROWS = S::ROWS;
    union {
        struct {
            float state[GDN_DIM][COLUMNS + 4];  // padded, as `left`: fragments load without conflicts
            float left[2 * ROWS][GDN_DIM + 8];
        };
        struct {
            Parts<S, (S::DEPTHS > 1)> parts;
            float keys[ROWS][ROWS + 4];     // [j][i]: decayed k_j . k_i, for ancestors j
            float queries[ROWS][ROWS + 4];  // [i][j]: decayed k_j . q_i, for ancestors and self
            float u[ROWS][COLUMNS + 8];
            float out[ROWS][COLUMNS + 8];
        };
    };
    float between[ROWS][ROWS + 2];  // [i][j]: e^(G_i - G_j) for ancestors j and self, else 0
    float from_state[ROWS];         // e^G
    Gates<ROWS> gates;
};

// Starts copying the state, keys and queries; rows beyond become zeros.
template <class S>
DEVICE void copy_operands(VerifyShared<S> &shared, const HeadRows &head, const float *state) {
    constexpr int THREADS = S::THREADS, ROWS = S::ROWS, UNITS = GDN_DIM / 4, ACROSS = COLUMNS / 4;
    const int key = thread_index() / ACROSS, part = 4 * (thread_index() % ACROSS);
    state += key * GDN_DIM + part;
#pragma unroll 4
    for (int i = 0; i < GDN_DIM; i += THREADS / ACROSS)
        copy_async(&shared.state[key + i][part], state + i * GDN_DIM, true);
    const int line = thread_index() / UNITS, unit = 4 * (thread_index() % UNITS);
    const long long at = head.key(line) + unit;
    const int stride = head.p.key_heads * GDN_DIM;
#pragma unroll 2
    for (int i = 0; i < ROWS; i += THREADS / UNITS) {
        const bool valid = line + i < head.rows;
        const long long from = valid ? at + (long long)i * stride : 0;
        copy_async(&shared.left[line + i][unit], head.p.k + from, valid);
        copy_async(&shared.left[ROWS + line + i][unit], head.p.q + from, valid);
    }
    commit_copies();
}

template <class S>
DEVICE void decay_rows(VerifyShared<S> &shared, int rows) {
    constexpr int ROWS = S::ROWS;
    const int thread = thread_index();
    if (thread < ROWS) shared.from_state[thread] = thread < rows ? decay_from_state(shared.gates, thread) : 0.0f;
    static_assert(ROWS * ROWS % S::THREADS == 0, "as many for each thread");
#pragma unroll
    for (int first = 0; first < ROWS * ROWS; first += S::THREADS) {
        const int i = (first + thread) / ROWS, j = thread % ROWS;
        shared.between[i][j] = decay_between(shared.gates, i, j);
    }
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

// A warp's sums, first of the state's tiles, then of the keys': a lane holds rows `lane / 4` and 8 below of
// its 16, columns `2 (lane % 4)` and the next of every tile of 8.
template <class S>
using Products = float[S::TILES / S::SHARERS][4];

template <class S>
DEVICE void multiply(Products<S> &products, VerifyShared<S> &shared, int left_tile, int sharer,
                     int part) {
    constexpr int ROWS = S::ROWS;
    constexpr int STATE_TILES = S::STATE_TILES / S::SHARERS, GRAM_TILES = S::GRAM_TILES / S::SHARERS;
    const int lane = thread_index() % 32, down = lane / 4, across = 2 * (lane % 4);
#pragma unroll 2
    for (int i = 0; i < STEPS / S::DEPTHS; i++) {
        const int depth = 16 * (part * STEPS / S::DEPTHS + i) + across;
        Left a;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = 16 * left_tile + down + 8 * (i % 2);
            const Split x = split_at(&shared.left[row][depth + 8 * (i / 2)]);
            a.high[i] = x.high;
            a.low[i] = x.low;
        }
        Right b[STATE_TILES];
#pragma unroll
        for (int n = 0; n < STATE_TILES; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int column = 8 * (n * S::SHARERS + sharer) + down;
                b[n].at[i] = split(shared.state[depth + 8 * i][column],
                                   shared.state[depth + 8 * i + 1][column]);
            }
        accumulate<STATE_TILES>(products, a, b);
        // Ancestors come before: tiles behind the last of these rows stay zero.
        constexpr int PAIR = GRAM_TILES < 2 ? 1 : 2;
#pragma unroll
        for (int n = 0; n < GRAM_TILES; n += PAIR) {
            if ((n * S::SHARERS) / 2 > left_tile % (ROWS / 16)) continue;
            Right keys[PAIR];
#pragma unroll
            for (int m = 0; m < PAIR; m++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int row = 8 * ((n + m) * S::SHARERS + sharer) + down;
                    keys[m].at[i] = split_at(&shared.left[row][depth + 8 * i]);
                }
            accumulate<PAIR>(products + STATE_TILES + n, a, keys);
        }
    }
}

// Decays a tile of the state's sums: `u` becomes v - e^G S^T k, `out` e^G S^T q.
template <class S>
DEVICE void place_state(const float (&sum)[4], VerifyShared<S> &shared, const Float2 (&values)[2],
                        int left_tile, int column) {
    const bool key = left_tile < S::ROWS / 16;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int i = 16 * (left_tile % (S::ROWS / 16)) + thread_index() % 32 / 4 + 8 * half;
        const float decay = shared.from_state[i];
        Float2 x;
#pragma unroll
        for (int c = 0; c < 2; c++) {
            x.at[c] = decay * sum[2 * half + c];
            if (key) x.at[c] = values[half].at[c] - x.at[c];
        }
        store<Float2>((key ? shared.u : shared.out)[i] + column, 0, x);
    }
}

// Decays and masks a tile of a Gram matrix.
template <class S>
DEVICE void place_gram(const float (&sum)[4], VerifyShared<S> &shared, int left_tile, int column) {
    const bool key = left_tile < S::ROWS / 16;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int i = 16 * (left_tile % (S::ROWS / 16)) + thread_index() % 32 / 4 + 8 * half;
        Float2 x = load<Float2>(shared.between[i] + column, 0);
#pragma unroll
        for (int c = 0; c < 2; c++) x.at[c] *= sum[2 * half + c];
        if (key) {
            shared.keys[column][i] = x.at[0];
            shared.keys[column + 1][i] = x.at[1];
        } else {
            store<Float2>(shared.queries[i] + column, 0, x);
        }
    }
}

// Exchanges sums where warps have parts of them, and places the tiles that are a warp's then.
template <class S>
DEVICE void place(const Products<S> &products, VerifyShared<S> &shared, const Float2 (&values)[S::MINE][2],
                  int left_tile, int turn) {
    const int lane = thread_index() % 32;
    if constexpr (S::DEPTHS > 1) {
#pragma unroll
        for (int n = 0; n < S::TILES; n++) {
            const float(&x)[4] = products[n];
            shared.parts.at[left_tile][n][turn][lane] = {{x[0], x[1], x[2], x[3]}};
        }
        sync_block();
    }
#pragma unroll
    for (int n = 0; n * S::TURNS < S::TILES; n++) {
        const int tile = n * S::TURNS + turn;
        if (S::TILES % S::TURNS != 0 && tile >= S::TILES) break;
        float sum[4] = {};
        if constexpr (S::DEPTHS == 1) {
#pragma unroll
            for (int c = 0; c < 4; c++) sum[c] = products[n][c];
        } else {
#pragma unroll
            for (int part = 0; part < S::DEPTHS; part++) {
                const Float4 x = shared.parts.at[left_tile][tile][part][lane];
#pragma unroll
                for (int c = 0; c < 4; c++) sum[c] += x.at[c];
            }
        }
        const int column = 8 * tile + 2 * (lane % 4);
        if (n < S::MINE)
            place_state(sum, shared, values[n], left_tile, column);
        else
            place_gram(sum, shared, left_tile, column - COLUMNS);
    }
}

// Forward substitution by one warp, a column per lane: `shared.u` ends as the corrections. They are
// stored at the end, so that no load waits for a store.
template <class S>
DEVICE void solve(VerifyShared<S> &shared, int rows) {
    constexpr int ROWS = S::ROWS;
    const int lane = thread_index() % 32;
    float u[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) u[i] = shared.u[i][lane];
#pragma unroll
    for (int j = 0; j < ROWS; j++) {
        if (j % 16 == 0 && j >= rows) break;
        u[j] *= shared.gates.beta[j];
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

template <class S>
DEVICE void write_out(VerifyShared<S> &shared, const HeadRows &head) {
    constexpr int ROWS = S::ROWS;
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    float u[ROWS];
#pragma unroll
    for (int j = 0; j < ROWS; j++) u[j] = shared.u[j][lane];
#pragma unroll 1
    for (int i = warp; i < head.rows; i += S::WARPS) {
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

template <class S>
DEVICE void gdn_verify(const GdnParams &p) {
    constexpr int ROWS = S::ROWS;
    VerifyShared<S> &shared = shared_as<VerifyShared<S>>();
    // Tables are copied ahead of all kernels of a pass.
    const Segment segment = p.tables.segments[block_z()];
    const HeadRows head = {p, segment.first, segment.rows, block_y(), block_x() * COLUMNS};
    const float *state = state_of(p, segment, head);
    if (thread_index() < GDN_DIM) fetch_ahead(state + thread_index() * GDN_DIM);
    wait_for_earlier();
    if (head.rows == 0) return;
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    const int left_tile = warp / S::TURNS, turn = warp % S::TURNS;
    // Ahead of the copies, which are many.
    const LaneRows<ROWS> rows(head, segment.tree != 0, warp == 0 ? head.rows : 0);
    copy_operands(shared, head, state);
    Float2 values[S::MINE][2] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = 16 * left_tile + lane / 4 + 8 * half;
        if (row >= ROWS || row >= head.rows) continue;
#pragma unroll
        for (int n = 0; n < S::MINE; n++) {
            const int column = 8 * (n * S::TURNS + turn) + 2 * (lane % 4);
            values[n][half] = load<Float2>(p.v + head.value(row) + column, 0);
        }
    }
    if (warp == 0) sum_decays(shared.gates, rows);
    sync_block();
    decay_rows(shared, head.rows);
    wait_copies<0>();
    sync_block();
    Products<S> products = {};
    multiply<S>(products, shared, left_tile, turn % S::SHARERS, turn / S::SHARERS);
    sync_block();  // operands make room
    place<S>(products, shared, values, left_tile, turn);
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

#define VERIFY(name, rows, depths)                                                                 \
    KERNEL_AHEAD(name, (Shape<rows, depths>::THREADS), 1,                                          \
                 (sizeof(VerifyShared<Shape<rows, depths>>)), GdnParams,                           \
                 gdn_verify<Shape<rows, depths>>)

KERNEL_AHEAD(gdn_verify_1, 32 * QUARTERS, 1, sizeof(SingleShared), GdnParams, gdn_verify_single)
VERIFY(gdn_verify_16, 16, 1)
VERIFY(gdn_verify_16_few, 16, 4)
