// Rows of logits that are changed before tokens are drawn from them, in place: what a mask rules out has no
// logit any more, and single tokens take their bias and penalties. A changed token that is drawn then gets
// the logit back that it had.
#include "device.cuh"
#include "keys.cuh"
#include "params.h"

constexpr int THREADS = 256;
constexpr int TOKENS = DRAW_SLICE / THREADS;  // that a thread looks at

// One block per slice and row.
DEVICE void mask_slice(const EditParams &p) {
    const EditRow row = p.rows[block_y()];
    if (!row.masked) return;
    float *logits = p.logits + (long long)block_y() * p.width;
    const unsigned *mask = p.masks + row.mask;
#pragma unroll 4
    for (int i = 0; i < TOKENS; i++) {
        const int token = block_x() * DRAW_SLICE + i * THREADS + thread_index();
        if (token >= p.width) return;
        const int word = token / 32;
        const bool allowed = word < row.words && mask[word] >> token % 32 & 1;
        if (!allowed) logits[token] = minus_infinity();
    }
}

// One thread per change. Each step is rounded, as on the host.
DEVICE void change_token(const EditParams &p) {
    const EditRow row = p.rows[block_y()];
    const int i = block_x() * THREADS + thread_index();
    if (i >= row.changes) return;
    const TokenChange change = p.changes[row.first + i];
    float *logit = p.logits + (long long)block_y() * p.width + change.token;
    const float own = *logit;
    p.own[row.first + i] = own;
    const float biased = own + change.bias;
    const float scaled =
        biased > 0.0f ? biased / change.scale : rounded_product(biased, change.scale);
    *logit = scaled - change.penalty;
}

// One block per row.
DEVICE void restore_drawn(const EditParams &p) {
    const EditRow row = p.rows[block_x()];
    float *drawn = p.drawn + 2 * block_x();
    const unsigned token = (unsigned)drawn[0];
    const float logit = drawn[1];
    sync_block();
    // Of a row that nothing can be drawn from the logit tells so.
    if (!(fabsf(logit) < infinity())) return;
    for (int i = thread_index(); i < row.changes; i += THREADS)
        if (p.changes[row.first + i].token == token) drawn[1] = p.own[row.first + i];
}

KERNEL(mask_rows, THREADS, 3, 0, EditParams, mask_slice)
KERNEL(change_tokens, THREADS, 3, 0, EditParams, change_token)
KERNEL(restore_drawn_rows, THREADS, 3, 0, EditParams, restore_drawn)
