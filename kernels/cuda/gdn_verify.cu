// Outputs and corrections of up to 64 rows per segment, chain or tree; no state is written.
// Grid: (columns, value heads, segments).
#include "gdn_rule.cuh"

template <int ROWS>
DEVICE void gdn_verify(const GdnParams &p) {
    using S = Shape<ROWS>;
    RuleShared<ROWS> &shared = shared_as<RuleShared<ROWS>>();
    const Segment segment = p.tables.segments[block_z()];
    const HeadRows head = {p, segment.first, segment.rows, block_y(), block_x() * GDN_COLUMNS};
    if (head.rows == 0) return;
    const long long state = (long long)segment.slot * p.value_heads + head.head;
    copy_state<S::THREADS>(shared, p.state + state * GDN_DIM * GDN_DIM + head.column);
    for (int step = 0; step < S::STAGES - 1; step++) {
        copy_left(shared, head, step);
        commit_copies();
    }
    load_rows(shared, head, segment.tree != 0);
    sync_block();
    sum_decays(shared, head.rows);
    multiply(shared, head);
    solve(shared, head.rows);
    const int warp = thread_index() / 32, lane = thread_index() % 32;
    for (int i = warp; i < head.rows; i += S::THREADS / 32) {
        p.u[head.value(i) + lane] = shared.u[i][lane];
        store<bf16>(p.out, head.value(i) + lane, to_bf16(shared.out[i][lane]));
    }
}

KERNEL(gdn_verify_16, Shape<16>::THREADS, 1, sizeof(RuleShared<16>), GdnParams, gdn_verify<16>)
KERNEL(gdn_verify_32, Shape<32>::THREADS, 1, sizeof(RuleShared<32>), GdnParams, gdn_verify<32>)
KERNEL(gdn_verify_64, Shape<64>::THREADS, 1, sizeof(RuleShared<64>), GdnParams, gdn_verify<64>)
