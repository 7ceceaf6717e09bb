// Outputs and corrections of 17 to 64 rows per segment, chain or tree, by the formula of gdn_verify.cu. All
// products run on the tensor cores, each f32 factor as a sum of two bf16 that is made once, on the way into
// shared memory. The corrections solve a triangular system, of which the blocks on the diagonal are inverted.
// Grid: (columns, value heads, segments).
#include "gdn_rows.cuh"
#include "triangle.cuh"

constexpr int COLUMNS = GDN_MANY_COLUMNS;
constexpr int WARPS = 8, THREADS = 32 * WARPS, STEPS = GDN_DIM / 16;
// Eight values at a time go into shared memory.
constexpr int KEY_UNITS = GDN_DIM / 8, STATE_UNITS = COLUMNS / 8;
static_assert(STATE_UNITS == WARPS, "a warp solves a tile of columns");

// Shapes for at most ROWS rows. The keys stand over the queries in tiles of 16 rows, whose warps share its
// tiles of 8 columns, of the state and of the keys.
template <int ROWS_>
struct Shape {
    static constexpr int ROWS = ROWS_, BLOCKS = ROWS / 16;
    static constexpr int SHARERS = WARPS / (2 * BLOCKS);
    // Of a warp: tiles of columns of the state, and pairs of tiles of keys.
    static constexpr int TILES = STATE_UNITS / SHARERS, PAIRS = (BLOCKS + SHARERS - 1) / SHARERS;
};

template <bool which, class A, class B>
struct Either {
    typedef A Type;
};
template <class A, class B>
struct Either<false, A, B> {
    typedef B Type;
};

template <class S>
struct VerifyOperands {
    Halves<2 * S::ROWS, GDN_DIM> left;  // keys over queries
    Halves<GDN_DIM, COLUMNS> state;
};

template <class S>
struct VerifyResults {
    static constexpr int ROWS = S::ROWS;
    Halves<ROWS, ROWS> system;       // -beta_i e^(G_i - G_j) k_j . k_i; inverses on the diagonal
    Halves<ROWS, ROWS> queries;      // e^(G_i - G_j) k_j . q_i
    Halves<ROWS, COLUMNS> u;
    float right[ROWS][COLUMNS + 8];  // beta_i (v_i - e^G_i S^T k_i)
    Diagonal<ROWS> diagonal;
};

template <class S>
struct VerifyShared {
    // Results of many rows take the place of operands, those of fewer have their own.
    static constexpr bool APART = S::ROWS <= 32;
    struct Apart {
        VerifyOperands<S> operands;
        VerifyResults<S> results;
    };
    union Together {
        VerifyOperands<S> operands;
        VerifyResults<S> results;
    };
    typename Either<APART, Apart, Together>::Type room;
    Gates<S::ROWS> gates;

    DEVICE VerifyOperands<S> &operands() { return room.operands; }
    DEVICE VerifyResults<S> &results() { return room.results; }
};

// A warp's part of the products.
template <class S>
struct Part {
    bool keys;
    int block;  // of 16 rows
    int sharer;

    // Queries stand in the other order, so that the schedulers have as much to do.
    DEVICE Part() {
        const int tile = thread_index() / 32 / S::SHARERS;
        keys = tile < S::BLOCKS;
        block = keys ? tile : 2 * S::BLOCKS - 1 - tile;
        sharer = thread_index() / 32 % S::SHARERS;
    }
    // Row of a lane's values, with `half` that 8 below, and their column in a tile of the state.
    DEVICE int row(int half) const { return 16 * block + thread_index() % 32 / 4 + 8 * half; }
    DEVICE int column(int tile) const { return 8 * (sharer * S::TILES + tile) + 2 * (thread_index() % 4); }
};

template <int HEIGHT, int WIDTH>
DEVICE void store_eight(Halves<HEIGHT, WIDTH> &to, int row, int unit, const Float4 (&x)[2]) {
    Bytes16 high, low;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float *pair = x[i / 2].at + 2 * (i % 2);
        high.word[i] = pack(pair[0], pair[1]);
        low.word[i] = low_part(high.word[i], pair[0], pair[1]);
    }
    store<Bytes16>(unit_at(to.at[0], row, unit), 0, high);
    store<Bytes16>(unit_at(to.at[1], row, unit), 0, low);
}

// Keys, queries and the state. All loads come before the first store; rows beyond the last become zeros.
template <class S>
struct Operands {
    static constexpr int LEFT = 2 * S::ROWS * KEY_UNITS / THREADS, STATE = GDN_DIM * STATE_UNITS / THREADS;
    Float4 left[LEFT][2], state[STATE][2];

    // Rows of a thread in pass `i`.
    static DEVICE int left_row(int i) { return i * (THREADS / KEY_UNITS) + thread_index() / KEY_UNITS; }
    static DEVICE int state_row(int i) { return i * (THREADS / STATE_UNITS) + thread_index() / STATE_UNITS; }

    DEVICE Operands(const HeadRows &head, const float *from) {
        const long long first = head.key(left_row(0)) + 8 * (thread_index() % KEY_UNITS);
        const int apart = THREADS / KEY_UNITS * head.p.key_heads * GDN_DIM;
#pragma unroll
        for (int i = 0; i < LEFT; i++) {
            const int pass = i % (LEFT / 2);
            const float *line = (i < LEFT / 2 ? head.p.k : head.p.q) + first + pass * apart;
            left[i][0] = left[i][1] = Float4{};
            if (left_row(pass) >= head.rows) continue;
            left[i][0] = load<Float4>(line, 0);
            left[i][1] = load<Float4>(line, 1);
        }
        from += state_row(0) * GDN_DIM + 8 * (thread_index() % STATE_UNITS);
#pragma unroll
        for (int i = 0; i < STATE; i++) {
            state[i][0] = load<Float4>(from + i * (THREADS / STATE_UNITS) * GDN_DIM, 0);
            state[i][1] = load<Float4>(from + i * (THREADS / STATE_UNITS) * GDN_DIM, 1);
        }
    }

    DEVICE void store(VerifyShared<S> &shared) const {
#pragma unroll
        for (int i = 0; i < LEFT; i++)
            store_eight(shared.operands().left, left_row(i), thread_index() % KEY_UNITS, left[i]);
#pragma unroll
        for (int i = 0; i < STATE; i++)
            store_eight(shared.operands().state, state_row(i), thread_index() % STATE_UNITS, state[i]);
    }
};

// A warp's sums: its rows with the state, and with those keys of its share that may be ancestors.
template <class S>
struct Products {
    Tile state[S::TILES];
    Tile keys[S::PAIRS][2];
};

template <class S>
DEVICE void multiply(Products<S> &products, VerifyOperands<S> &operands, const Part<S> &part) {
    const int lane = thread_index() % 32, row = 16 * part.block + (part.keys ? 0 : S::ROWS);
#pragma unroll 2
    for (int step = 0; step < STEPS; step++) {
        const Left a = left_of(operands.left, row, step, lane);
        Right b[S::TILES];
#pragma unroll
        for (int n = 0; n < S::TILES; n++)
            b[n] = right_of(operands.state, step, part.sharer * S::TILES + n, lane);
        accumulate(products.state, a, b);
#pragma unroll
        for (int m = 0; m < S::PAIRS; m++) {
            const int block = m * S::SHARERS + part.sharer;
            if (block > part.block) continue;
            const Right keys[2] = {right_of_transposed(operands.left, step, 2 * block, lane),
                                   right_of_transposed(operands.left, step, 2 * block + 1, lane)};
            accumulate(products.keys[m], a, keys);
        }
    }
}

// Decays the sums with the state: those of keys become right sides, those of queries stay.
template <class S>
DEVICE void place_state(Products<S> &products, VerifyShared<S> &shared, const Part<S> &part,
                        const Float2 (&values)[S::TILES][2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int i = part.row(half);
        const float decay = decay_from_state(shared.gates, i), beta = shared.gates.beta[i];
#pragma unroll
        for (int n = 0; n < S::TILES; n++) {
            float *sum = products.state[n].at + 2 * half;
            Float2 right;
#pragma unroll
            for (int c = 0; c < 2; c++) {
                sum[c] *= decay;
                right.at[c] = beta * (values[n][half].at[c] - sum[c]);
            }
            if (part.keys) store<Float2>(shared.results().right[i] + part.column(n), 0, right);
        }
    }
}

// Decays and masks the sums with keys.
template <class S>
DEVICE void place_keys(Products<S> &products, VerifyShared<S> &shared, const Part<S> &part) {
    VerifyResults<S> &results = shared.results();
    const int lane = thread_index() % 32;
#pragma unroll
    for (int m = 0; m < S::PAIRS; m++) {
        const int block = m * S::SHARERS + part.sharer;
        if (block > part.block) continue;
#pragma unroll
        for (int n = 0; n < 2; n++) {
            Tile &tile = products.keys[m][n];
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const int i = part.row(c / 2), j = 16 * block + 8 * n + 2 * (lane % 4) + c % 2;
                tile.at[c] *= decay_between(shared.gates, i, j);
                if (!part.keys) continue;
                tile.at[c] *= -shared.gates.beta[i];
                if (block == part.block) results.diagonal[block][j % 16][i % 16] = i == j ? 0.0f : tile.at[c];
            }
            if (!part.keys)
                store_tile(results.queries, 16 * part.block, 2 * block + n, tile, lane);
            else if (block < part.block)
                store_tile(results.system, 16 * part.block, 2 * block + n, tile, lane);
        }
    }
}

// A tile of columns of the corrections.
template <class S>
DEVICE void correct(VerifyResults<S> &results, const HeadRows &head) {
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    const int column = 8 * warp + 2 * (lane % 4);
    Columns<S::BLOCKS, 1> u;
#pragma unroll
    for (int i = 0; i < 2 * S::BLOCKS; i++) {
        const Float2 right = load<Float2>(results.right[8 * i + lane / 4] + column, 0);
        u.at[i / 2][0].at[2 * (i % 2)] = right.at[0];
        u.at[i / 2][0].at[2 * (i % 2) + 1] = right.at[1];
    }
    solve(u, results.system, results.u, warp, lane);
#pragma unroll
    for (int i = 0; i < 2 * S::BLOCKS; i++) {
        const int row = 8 * i + lane / 4;
        const float *x = u.at[i / 2][0].at + 2 * (i % 2);
        if (row < head.rows) store<Float2>(head.p.u + head.value(row) + column, 0, Float2{{x[0], x[1]}});
    }
}

// Adds what the corrections give to the outputs.
template <class S>
DEVICE void write_out(Products<S> &products, VerifyResults<S> &results, const Part<S> &part,
                      const HeadRows &head) {
    const int lane = thread_index() % 32;
#pragma unroll
    for (int step = 0; step < S::BLOCKS; step++) {
        if (step > part.block) continue;
        Right u[S::TILES];
#pragma unroll
        for (int n = 0; n < S::TILES; n++) u[n] = right_of(results.u, step, part.sharer * S::TILES + n, lane);
        accumulate(products.state, left_of(results.queries, 16 * part.block, step, lane), u);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (part.row(half) >= head.rows) continue;
#pragma unroll
        for (int n = 0; n < S::TILES; n++) {
            const float *x = products.state[n].at + 2 * half;
            store<unsigned>(head.p.out, (head.value(part.row(half)) + part.column(n)) / 2, pack(x[0], x[1]));
        }
    }
}

template <class S>
DEVICE void gdn_verify(const GdnParams &p) {
    VerifyShared<S> &shared = shared_as<VerifyShared<S>>();
    // Tables are copied ahead of all kernels of a pass.
    const Segment segment = p.tables.segments[block_z()];
    const HeadRows head = {p, segment.first, segment.rows, block_y(), block_x() * COLUMNS};
    const float *state = state_of(p, segment, head);
    constexpr int LINES = COLUMNS / 32;  // of 128 bytes in a row
    static_assert(THREADS == LINES * GDN_DIM, "a thread per line");
    fetch_ahead(state + thread_index() / LINES * GDN_DIM + thread_index() % LINES * 32);
    wait_for_earlier();
    if (head.rows == 0) return;
    const int warp = thread_index() / 32;
    const Part<S> part;
    const LaneRows<S::ROWS> rows(head, segment.tree != 0, warp == WARPS - 1 ? head.rows : 0);
    const Operands<S> operands(head, state);
    Float2 values[S::TILES][2] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (!part.keys || part.row(half) >= head.rows) continue;
#pragma unroll
        for (int n = 0; n < S::TILES; n++)
            values[n][half] = load<Float2>(p.v + head.value(part.row(half)) + part.column(n), 0);
    }
    if (warp == WARPS - 1) sum_decays(shared.gates, rows);
    operands.store(shared);
    sync_block();
    Products<S> products = {};
    multiply(products, shared.operands(), part);
    if constexpr (!VerifyShared<S>::APART) sync_block();
    place_state(products, shared, part, values);
    place_keys(products, shared, part);
    sync_block();
    if (thread_index() < 4 * S::ROWS) invert_diagonal(shared.results().system, shared.results().diagonal);
    sync_block();
    correct(shared.results(), head);
    sync_block();
    if (!part.keys) write_out(products, shared.results(), part, head);
}

#define VERIFY_MANY(name, rows)                                                                    \
    KERNEL_AHEAD(name, THREADS, 1, sizeof(VerifyShared<Shape<rows>>), GdnParams, gdn_verify<Shape<rows>>)

VERIFY_MANY(gdn_verify_32, 32)
VERIFY_MANY(gdn_verify_64, 64)
