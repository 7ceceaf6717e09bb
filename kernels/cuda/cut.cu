// The last token of an open row that top-k or top-p keeps, digit by digit of its key: each launch counts
// the tokens that share the digits found so far, and weighs them, by their next digit. Weights are summed
// as integers, so that the order does not matter.
#include "device.cuh"
#include "keys.cuh"
#include "params.h"

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int TOKENS = DRAW_SLICE / THREADS;  // that a thread counts
constexpr int OWN = CUT_BINS / THREADS;       // bins that it looks through
// Parts of a weight of 1, and bits of the lower half of one.
constexpr float PARTS = 68719476736.0f;  // 2^36
constexpr int HALF_BITS = 18;

typedef unsigned long long Mass;

struct Shared {
    unsigned count[CUT_BINS];
    // Halves, so that the sums of a slice fit 32 bits.
    unsigned low[CUT_BINS];
    unsigned high[CUT_BINS];
    Mass masses[THREADS];
    unsigned counts[THREADS];
    int most[WARPS];
    int arrived;
};

// Bits of a key below a digit: 11, 11 and 10 bits of the logit, then 22 of the id; the ten above those
// are the same in all ids.
DEVICE int shift_of(int digit) {
    return digit == 0 ? 53 : digit == 1 ? 42 : digit == 2 ? 32 : digit == 3 ? 11 : 0;
}
constexpr Key SAME_BITS = (Key)0x3ff << 22;

DEVICE int bin_of(Key key, int digit) {
    return (int)(key >> shift_of(digit)) & (digit == 2 ? 1023 : CUT_BINS - 1);
}

// Whether a token with so much ahead of it, and all behind it, are cut off.
DEVICE bool ends(const DrawParams &p, const DrawRow &draw, unsigned count, Mass mass, Mass total) {
    if (!p.by_mass) return count >= draw.top_k;
    return count > 0 && (float)((double)mass / (double)total) >= draw.top_p;
}

DEVICE int block_max(Shared &shared, int x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x = max_of(x, shuffle_xor(x, lanes));
    if (thread_index() % 32 == 0) shared.most[thread_index() / 32] = x;
    sync_block();
    for (int i = 0; i < WARPS; i++) x = max_of(x, shared.most[i]);
    return x;
}

// Goes through the bins of a row from the greatest, all slices together, to the last that keeps a token.
DEVICE void choose_bin(const DrawParams &p, const DrawRow &draw, OpenRow &row, Shared &shared) {
    const int thread = thread_index();
    unsigned *counts = p.counts + (long long)block_y() * CUT_BINS;
    Mass *masses = p.masses + (long long)block_y() * CUT_BINS;
    const int greatest = CUT_BINS - 1 - thread * OWN;
    unsigned count[OWN], own_count = 0;
    Mass mass[OWN], own_mass = 0;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        count[i] = load_fresh(counts + greatest - i);
        mass[i] = load_fresh(masses + greatest - i);
        counts[greatest - i] = 0;  // for the next launch
        masses[greatest - i] = 0;
        own_count += count[i];
        own_mass += mass[i];
    }
    shared.counts[thread] = own_count;
    shared.masses[thread] = own_mass;
    sync_block();
    for (int step = 1; step < THREADS; step *= 2) {
        const unsigned more_count = thread < step ? 0 : shared.counts[thread - step];
        const Mass more_mass = thread < step ? 0 : shared.masses[thread - step];
        sync_block();
        shared.counts[thread] += more_count;
        shared.masses[thread] += more_mass;
        sync_block();
    }
    // Without a cut by count, all tokens are what top-p is a share of.
    const Mass total = row.total == 0 ? shared.masses[THREADS - 1] : row.total;
    unsigned count_before = row.count_before + shared.counts[thread] - own_count;
    Mass mass_before = row.mass_before + shared.masses[thread] - own_mass;
    int last = -1;
    unsigned last_count = 0;
    Mass last_mass = 0, in_last = 0;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        if (count[i] > 0 && !ends(p, draw, count_before, mass_before, total)) {
            last = greatest - i;
            last_count = count_before;
            last_mass = mass_before;
            in_last = mass[i];
        }
        count_before += count[i];
        mass_before += mass[i];
    }
    // Bins are walked downwards.
    const int chosen = CUT_BINS - 1 - block_max(shared, last < 0 ? -1 : CUT_BINS - 1 - last);
    if (thread == 0) row.arrived = 0;
    if (last != chosen) return;
    Key key = row.chosen | (Key)chosen << shift_of(p.digit);
    if (p.digit == 3) key |= SAME_BITS;
    if (p.digit < CUT_DIGITS - 1) {
        row.chosen = key;
        row.count_before = last_count;
        row.mass_before = last_mass;
        row.total = p.by_mass ? total : 0;
    } else {
        row.least = key > row.least ? key : row.least;
        row.total = p.by_mass ? 0 : last_mass + in_last;
        row.chosen = row.mass_before = 0;
        row.count_before = 0;
    }
}

// One block per slice and row; the last of a row to come chooses the digit.
DEVICE void cut_slice(const DrawParams &p) {
    Shared &shared = shared_as<Shared>();
    const int thread = thread_index();
    OpenRow &row = p.open[block_y()];
    const DrawRow draw = p.draws[block_y()];
    if (!row.open || (p.by_mass ? draw.top_p >= 1.0f : draw.top_k == 0)) return;
    for (int i = thread; i < CUT_BINS; i += THREADS)
        shared.count[i] = shared.low[i] = shared.high[i] = 0;
    sync_block();
    const float *logits = p.logits + (long long)block_y() * p.width;
    const int first = block_x() * DRAW_SLICE + thread;
    float logit[TOKENS];
#pragma unroll
    for (int i = 0; i < TOKENS; i++) {
        const int column = first + i * THREADS;
        logit[i] = column < p.columns ? logits[column] : minus_infinity();
    }
    const float power = 1.0f / draw.temperature;
    // Digits that are found, with those that all ids share.
    const int known = p.digit == 0 ? 63 : p.digit == 3 ? 32 : shift_of(p.digit - 1);
    const Key chosen = row.chosen;
#pragma unroll
    for (int i = 0; i < TOKENS; i++) {
        const Key key = key_of(logit[i], (unsigned)(first + i * THREADS));
        const bool same = p.digit == 0 || key >> known == chosen >> known;
        if (!same || !(logit[i] > minus_infinity())) continue;
        const float weight = expf(fminf(logit[i] - row.largest, 0.0f) * power);
        const Mass mass = (Mass)(weight * PARTS + 0.5f);
        const int bin = bin_of(key, p.digit);
        add_to(&shared.count[bin], 1u);
        add_to(&shared.low[bin], (unsigned)mass & ((1u << HALF_BITS) - 1));
        add_to(&shared.high[bin], (unsigned)(mass >> HALF_BITS));
    }
    sync_block();
    for (int i = thread; i < CUT_BINS; i += THREADS) {
        if (shared.count[i] == 0) continue;
        const long long bin = (long long)block_y() * CUT_BINS + i;
        add_to(&p.counts[bin], shared.count[i]);
        add_to(&p.masses[bin], ((Mass)shared.high[i] << HALF_BITS) + shared.low[i]);
    }
    fence();
    sync_block();
    if (thread == 0) shared.arrived = count_up(&row.arrived);
    sync_block();
    if (shared.arrived + 1 < grid_x()) return;
    fence();
    choose_bin(p, draw, row, shared);
}

KERNEL(cut_rows, THREADS, 3, sizeof(Shared), DrawParams, cut_slice)
