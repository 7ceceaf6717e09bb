// A prompt in chunks of 64 rows: the rule of a block, then the block is folded into the state, which
// stays in shared memory from the first chunk to the last. Grid: (columns, value heads, segments).
#include "gdn_rule.cuh"

constexpr int ROWS = 64;

// state = e^G state + sum_j e^(G - G_j) k_j u_j^T over the rows of the chunk.
DEVICE void fold(RuleShared<ROWS> &shared, const HeadRows &head) {
    using S = Shape<ROWS>;
    const int down = thread_index() / 8, across = thread_index() % 8;
    static_assert(S::TALL == S::DEPTH, "one key dimension per thread and step");
    // From here `out` holds e^(G - G_j) u_j: the outputs have been stored.
    const int last = head.rows - 1;
    for (int i = thread_index(); i < ROWS * GDN_COLUMNS; i += S::THREADS) {
        const int row = i / GDN_COLUMNS, column = i % GDN_COLUMNS;
        float scaled = 0.0f;
        if (row < head.rows) scaled = expf(shared.decay[last][row]) * shared.u[row][column];
        shared.out[row][column] = scaled;
    }
    const float from_state = expf(shared.decay[last][ROWS]);
    for (int step = 0; step < S::STEPS; step++) {
        wait_copies<S::STAGES - 2>();
        sync_block();
        if (step + S::STAGES - 1 < S::STEPS) copy_left(shared, head, step + S::STAGES - 1);
        commit_copies();
        const float(*keys)[S::LINE] = shared.left[step % S::STAGES];
        float *line = shared.state[step * S::DEPTH + down];
        Float4 sum = load<Float4>(line, across);
#pragma unroll
        for (int c = 0; c < 4; c++) sum.at[c] *= from_state;
#pragma unroll 8
        for (int j = 0; j < ROWS; j++) {
            const float key = keys[j][down];
            const Float4 u = load<Float4>(shared.out[j], across);
#pragma unroll
            for (int c = 0; c < 4; c++) sum.at[c] += key * u.at[c];
        }
        store<Float4>(line, across, sum);
    }
}

DEVICE void start_left(RuleShared<ROWS> &shared, const HeadRows &head) {
    for (int step = 0; step < Shape<ROWS>::STAGES - 1; step++) {
        copy_left(shared, head, step);
        commit_copies();
    }
}

DEVICE void gdn_prefill(const GdnParams &p) {
    using S = Shape<ROWS>;
    RuleShared<ROWS> &shared = shared_as<RuleShared<ROWS>>();
    const Segment segment = p.tables.segments[block_z()];
    const int value_head = block_y(), column = block_x() * GDN_COLUMNS;
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    if (segment.rows == 0) return;
    const long long slot_head = (long long)segment.slot * p.value_heads + value_head;
    float *state = p.state + slot_head * GDN_DIM * GDN_DIM + column;
    copy_state<S::THREADS>(shared, state);
    for (int done = 0; done < segment.rows; done += ROWS) {
        const HeadRows head = {p, segment.first + done, min_of(ROWS, segment.rows - done),
                               value_head, column};
        start_left(shared, head);
        load_rows(shared, head, false);
        sync_block();
        sum_decays(shared, head.rows);
        multiply(shared, head);
        solve(shared, head.rows);
        sync_block();
        start_left(shared, head);  // the Gram matrices are done with
        for (int i = warp; i < head.rows; i += S::THREADS / 32)
            store<bf16>(p.out, head.value(i) + lane, to_bf16(shared.out[i][lane]));
        sync_block();
        fold(shared, head);
        wait_copies<0>();
        sync_block();
    }
    for (int i = thread_index(); i < GDN_DIM * GDN_COLUMNS / 4; i += S::THREADS) {
        const int key = i / (GDN_COLUMNS / 4), unit = i % (GDN_COLUMNS / 4);
        store<Float4>(state + key * GDN_DIM, unit, load<Float4>(shared.state[key], unit));
    }
}

KERNEL(gdn_prefill_chunks, Shape<ROWS>::THREADS, 1, sizeof(RuleShared<ROWS>), GdnParams,
       gdn_prefill)
