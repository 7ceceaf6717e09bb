// Takes the state through the chunks of a prompt, one after the other, from what gdn_chunk.cu has made
// of them; with u = T beta v - W S for the state S before a chunk,
//   o_i = e^G_i S^T q_i + sum_j e^(G_i - G_j) (k_j . q_i) u_j   over j up to i,
//   S becomes e^G S + sum_j k_j (e^(G - G_j) u_j)^T.
// The state stays in registers. Grid: (slices of columns, value heads, segments); 8 warps, or two
// warpgroups of four.
#include "gdn_chunk.cuh"
#include "warpgroup.cuh"

constexpr int THREADS = 256;
constexpr int ROWS = CHUNK_ROWS, BLOCKS = CHUNK_BLOCKS;
static_assert(THREADS / 32 == 2 * BLOCKS, "a warp per block of corrections and of outputs");
static_assert(THREADS / 32 == KEY_STEPS, "a warp holds 16 rows of the state");

template <int COLUMNS>
struct PrefillShared {
    Halves<GDN_DIM, COLUMNS> state;
    Halves<ROWS, COLUMNS> u;
    Halves<ROWS, COLUMNS> scaled;  // e^(G - G_j) u_j
};

// Half of what a warp multiplies the state with: rows of W, or queries.
constexpr int HALF_STEPS = KEY_STEPS / 2;
struct Half {
    Left at[HALF_STEPS];
};

DEVICE Half load_half(const HeadChunk &head, const KeyChunk &key, bool corrections, int block,
                      int first_step, int lane) {
    const StoredLeft *from = corrections ? head.w[block] : key.q[block];
    Half half;
#pragma unroll
    for (int i = 0; i < HALF_STEPS; i++) half.at[i] = load_left(from[first_step + i], lane);
    return half;
}

// What it adds: tiles of T beta v, or the products of its queries with the keys near them; and the decays
// of its rows, from there to the end or from the start.
struct Added {
    Bytes16 at[2 * BLOCKS];
    float decay[2];
};

template <int TILES>
DEVICE Added load_added(const HeadChunk &head, bool corrections, int block, int first_tile,
                        int lane) {
    Added added;
    const float *decay = corrections ? head.to_end : head.from_start;
#pragma unroll
    for (int half = 0; half < 2; half++)
        added.decay[half] = decay[16 * block + lane / 4 + 8 * half];
#pragma unroll
    for (int i = 0; i < 2 * BLOCKS; i++) {
        added.at[i] = Bytes16{};
        if (corrections) {
            if (i < TILES) added.at[i] = load<Bytes16>(head.u[block][first_tile + i], lane);
        } else if (i / 2 <= block) {
            const StoredLeft &from = head.near[block][i / 2];
            added.at[i] = i % 2 ? from.low[lane] : from.high[lane];
        }
    }
    return added;
}

// Whether the warps of a warpgroup multiply together: a slice is one panel then.
template <int TILES>
constexpr bool TOGETHER = WARPGROUPS && 8 * TILES == PANEL;

// sums += a times rows `16 step..` of a matrix, all columns. Products of warpgroups happen between
// `begin` and `end`, and `a` stays as it is until then.
template <int TILES, int HEIGHT>
DEVICE void multiply(Tile (&sums)[TILES], Left &a, Halves<HEIGHT, 8 * TILES> &b, int step,
                     [[maybe_unused]] int lane) {
    if constexpr (TOGETHER<TILES>) {
        float(&to)[TILES][4] = reinterpret_cast<float(&)[TILES][4]>(sums);
        const unsigned long long high = operand(b.at[0][16 * step], 0);
        const unsigned long long low = operand(b.at[1][16 * step], 0);
        multiply_panels(to, a.low, high);
        multiply_panels(to, a.high, low);
        multiply_panels(to, a.high, high);
    } else {
        constexpr int HALF = TILES / 2;  // so that fewer registers wait
#pragma unroll
        for (int first = 0; first < TILES; first += HALF) {
            Right right[HALF];
#pragma unroll
            for (int n = 0; n < HALF; n++) right[n] = right_of(b, step, first + n, lane);
            accumulate(reinterpret_cast<Tile(&)[HALF]>(sums[first]), a, right);
        }
    }
}

template <int TILES>
DEVICE void begin() {
    if constexpr (TOGETHER<TILES>) begin_products();
}

template <int TILES, int COUNT>
DEVICE void end([[maybe_unused]] Tile (&sums)[TILES], [[maybe_unused]] Left (&used)[COUNT]) {
    if constexpr (TOGETHER<TILES>) {
        commit_products();
        wait_products<0>();
        settle(reinterpret_cast<float(&)[TILES][4]>(sums));
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            settle(used[i].high);
            settle(used[i].low);
        }
    }
}

// Barrier after what products are to read was written.
template <int TILES>
DEVICE void sync_written() {
    if constexpr (TOGETHER<TILES>) show_to_products();
    sync_block();
}

// Corrections of a warp's 16 rows, plain and decayed to the end.
template <int TILES>
DEVICE void store_corrections(PrefillShared<8 * TILES> &shared, const Tile (&products)[TILES],
                              const Added &added, int block, int lane) {
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        Tile u, scaled;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            u.at[c] = bits_to_float(added.at[n].word[c]) - products[n].at[c];
            scaled.at[c] = added.decay[c / 2] * u.at[c];
        }
        store_tile(shared.u, 16 * block, n, u, lane);
        store_tile(shared.scaled, 16 * block, n, scaled, lane);
    }
}

// Outputs of a warp's 16 queries; `out` is at its first row and column.
template <int TILES>
DEVICE void write_out(PrefillShared<8 * TILES> &shared, Tile (&products)[TILES], const Added &added,
                      int block, int rows, bf16 *out, long long stride, int lane) {
    const int row = 16 * block + lane / 4;
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) products[n].at[c] *= added.decay[c / 2];
    Left near[BLOCKS];
    begin<TILES>();
#pragma unroll
    for (int step = 0; step < BLOCKS; step++) {
        // Zeros there; but a warpgroup's warps go on together.
        if (step > block && !TOGETHER<TILES>) continue;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            near[step].high[i] = added.at[2 * step].word[i];
            near[step].low[i] = added.at[2 * step + 1].word[i];
        }
        multiply(products, near[step], shared.u, step, lane);
    }
    end(products, near);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (row + 8 * half >= rows) continue;
        bf16 *to = out + (row + 8 * half) * stride + 2 * (lane % 4);
#pragma unroll
        for (int n = 0; n < TILES; n++)
            store<unsigned>(to + 8 * n, 0,
                            pack(products[n].at[2 * half], products[n].at[2 * half + 1]));
    }
}

template <int COLUMNS>
DEVICE void gdn_prefill(const GdnPrefillParams &p) {
    constexpr int TILES = COLUMNS / 8;
    PrefillShared<COLUMNS> &shared = shared_as<PrefillShared<COLUMNS>>();
    const Segment segment = p.rows.tables.segments[p.first_segment + block_z()];
    const int begun = p.first_chunk * ROWS, value_head = block_y();
    if (begun >= segment.rows) return;
    const int chunks = min_of(p.chunks, ceil_div(segment.rows - begun, ROWS));
    const int warp = thread_index() / 32;
    int lane = thread_index() % 32;
    const int key_head = value_head / (p.rows.value_heads / p.rows.key_heads);
    const bool corrections = warp < BLOCKS;
    const int block = warp % BLOCKS;

    const long long slot_head = (long long)segment.slot * p.rows.value_heads + value_head;
    float *own = p.rows.state + (slot_head * GDN_DIM + 16 * warp + lane / 4) * GDN_DIM +
                 block_x() * COLUMNS + 2 * (lane % 4);
    Tile state[TILES];
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) state[n].at[c] = own[(c / 2 * 8) * GDN_DIM + 8 * n + c % 2];

    Half half = load_half(head_chunk(p, block_z(), 0, value_head),
                          key_chunk(p, block_z(), 0, key_head), corrections, block, 0, lane);
    for (int chunk = 0; chunk < chunks; chunk++) {
        lane = opaque(lane);  // so that addresses are computed anew instead of being kept in registers
        const HeadChunk &head = head_chunk(p, block_z(), chunk, value_head);
        const KeyChunk &key = key_chunk(p, block_z(), chunk, key_head);
        Half later = load_half(head, key, corrections, block, HALF_STEPS, lane);
        const Added added = load_added<TILES>(head, corrections, block, block_x() * TILES, lane);
        const float decay = head.from_start[ROWS - 1];
#pragma unroll
        for (int n = 0; n < TILES; n++) store_tile(shared.state, 16 * warp, n, state[n], lane);
        sync_written<TILES>();
        Tile products[TILES] = {};
        begin<TILES>();
#pragma unroll
        for (int i = 0; i < HALF_STEPS; i++)
            multiply(products, half.at[i], shared.state, i, lane);
#pragma unroll
        for (int i = 0; i < HALF_STEPS; i++)
            multiply(products, later.at[i], shared.state, HALF_STEPS + i, lane);
        end(products, half.at);
        end(products, later.at);
        Left k[BLOCKS];
#pragma unroll
        for (int step = 0; step < BLOCKS; step++) k[step] = load_left(key.k[warp][step], lane);
        if (corrections) store_corrections(shared, products, added, block, lane);
        sync_written<TILES>();
        // On its way while this chunk ends.
        const int next = min_of(chunk + 1, chunks - 1);
        half = load_half(head_chunk(p, block_z(), next, value_head),
                         key_chunk(p, block_z(), next, key_head), corrections, block, 0, lane);
        if (!corrections) {
            const int done = begun + chunk * ROWS;
            const long long stride = (long long)p.rows.value_heads * GDN_DIM;
            bf16 *out = (bf16 *)p.rows.out + (segment.first + done) * stride +
                        value_head * GDN_DIM + block_x() * COLUMNS;
            write_out(shared, products, added, block, segment.rows - done, out, stride, lane);
        }
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) state[n].at[c] *= decay;
        begin<TILES>();
#pragma unroll
        for (int step = 0; step < BLOCKS; step++)
            multiply(state, k[step], shared.scaled, step, lane);
        end(state, k);
    }
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) own[(c / 2 * 8) * GDN_DIM + 8 * n + c % 2] = state[n].at[c];
}

KERNEL(gdn_prefill_64, THREADS, 1, sizeof(PrefillShared<64>), GdnPrefillParams, gdn_prefill<64>)
KERNEL(gdn_prefill_32, THREADS, 1, sizeof(PrefillShared<32>), GdnPrefillParams, gdn_prefill<32>)
