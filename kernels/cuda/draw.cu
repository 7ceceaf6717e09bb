// A token from each row of candidates: the likeliest, or Gumbel-max among those that the filters leave.
// A row that its candidates do not decide is left open for cut.cu and race.cu.
#include "device.cuh"
#include "keys.cuh"
#include "noise.cuh"
#include "params.h"

constexpr int THREADS = 128;
// Relative errors of a log-sum-exp and of a sum in another order, with room: as on the host, a cut that
// they could move is not decided by candidates.
constexpr double SUM_ERROR = 1e-5, ORDER_ERROR = 1e-9;

struct Shared {
    Key given[MOST_RANKS * CANDIDATES];
    Key ranked[CANDIDATES];
    double weight[CANDIDATES];   // of the candidates at the temperature, the likeliest's is 1
    double plain[CANDIDATES];    // the same at temperature 1
    double arrival[CANDIDATES];  // in the race
    double total;                // weight of those that are kept
    int kept;                    // none when the row is open
};

// Ranks the candidates of all ranks: how many there are, at most CANDIDATES.
DEVICE int order(Shared &shared, const float *tops, int ranks) {
    const int given = ranks * CANDIDATES;
    for (int i = thread_index(); i < given; i += THREADS) {
        const float *top = tops + i / CANDIDATES * TOP_WIDTH;
        const float logit = top[i % CANDIDATES];
        const unsigned id = (unsigned)top[CANDIDATES + i % CANDIDATES];
        shared.given[i] = logit > minus_infinity() ? key_of(logit, id) : 0;
    }
    if (thread_index() < CANDIDATES) shared.ranked[thread_index()] = 0;
    sync_block();
    for (int i = thread_index(); i < given; i += THREADS) {
        const Key key = shared.given[i];
        int rank = 0;
        for (int j = 0; j < given; j++) rank += shared.given[j] > key;
        if (key != 0 && rank < CANDIDATES) shared.ranked[rank] = key;
    }
    sync_block();
    int found = 0;
    while (found < CANDIDATES && shared.ranked[found] != 0) found++;
    return found;
}

// Least and most weight of all tokens but the candidates: of these only the sum at temperature 1 is
// known, and that none is above the last candidate.
struct Rest {
    double least, most;
};

DEVICE Rest rest_of(const Shared &shared, const DrawParams &p, const DrawRow &draw,
                    const float *tops) {
    const double largest = logit_of(shared.ranked[0]);
    double all = 0.0, known = 0.0;
    for (int i = 0; i < p.ranks; i++)
        all += exp(tops[i * TOP_WIDTH] + (double)tops[i * TOP_WIDTH + 2 * CANDIDATES] - largest);
    for (int i = 0; i < CANDIDATES; i++) known += shared.plain[i];
    const double least = all * (1.0 - SUM_ERROR) - known, most = all * (1.0 + SUM_ERROR) - known;
    if (!(most > 0.0)) return {0.0, 0.0};
    const double power = 1.0 / draw.temperature;
    if (power == 1.0 && draw.top_k == 0) return {least > 0.0 ? least : 0.0, most};
    if (power >= 1.0) {
        // exp(x / t) = exp(x) exp(x (1 / t - 1)).
        const double floor = logit_of(shared.ranked[CANDIDATES - 1]) - largest;
        return {0.0, most * exp(floor * (power - 1.0))};
    }
    // Of all ways to share the sum among so many tokens, the even one gives most.
    return {0.0, exp((1.0 - power) * log((double)p.columns) + power * log(most))};
}

// How many of the likeliest the filters leave, and their weight; none when that is not certain.
DEVICE void filter(Shared &shared, const DrawParams &p, const DrawRow &draw, const float *tops,
                   int found) {
    const bool few = draw.top_k > 0 && draw.top_k <= (unsigned)found;
    const bool complete = few || found < CANDIDATES || !p.open;
    const int last = few ? (int)draw.top_k : found;
    double least = 0.0;
    for (int i = 0; i < last; i++) least += shared.weight[i];
    double most = least;
    if (!complete) {
        const Rest rest = rest_of(shared, p, draw, tops);
        most = (most + rest.most) * (1.0 + ORDER_ERROR);
        least = (least + rest.least) * (1.0 - ORDER_ERROR);
    }
    shared.kept = complete ? last : 0;
    double before = 0.0;
    for (int i = 0; i < last; i++) {
        bool ends = i > 0 && (float)shared.weight[i] < draw.min_p;
        if (i > 0 && draw.top_p < 1.0f && !ends) {
            ends = (float)(before / most) >= draw.top_p;
            // A sum that is not a number, or one that may end it or not.
            if (ends != ((float)(before / least) >= draw.top_p)) break;
        }
        if (ends) {
            shared.kept = i;
            break;
        }
        before += shared.weight[i];
    }
    shared.total = before;
}

DEVICE void give(float *out, Key key) {
    out[0] = (float)id_of(key);
    out[1] = logit_of(key);
}

// Leaves a row to cut.cu and race.cu; the likeliest, should no token be left there.
DEVICE void open_row(const DrawParams &p, Key likeliest, float *out) {
    const int thread = thread_index(), row = block_x();
    for (int i = thread; i < CUT_BINS; i += THREADS) {
        p.counts[(long long)row * CUT_BINS + i] = 0;
        p.masses[(long long)row * CUT_BINS + i] = 0;
    }
    if (thread > 0) return;
    p.open[row] = OpenRow{0, 0, 0, 0, 0, 0, 1, logit_of(likeliest)};
    give(out, likeliest);
}

// One block per row.
DEVICE void draw_token(const DrawParams &p) {
    Shared &shared = shared_as<Shared>();
    const int thread = thread_index(), row = block_x();
    const float *tops = p.tops + (long long)row * p.ranks * TOP_WIDTH;
    float *out = p.out + 2 * row;
    const DrawRow draw = p.draws[row];
    const int found = order(shared, tops, p.ranks);
    if (p.open && thread == 0) p.open[row].open = 0;
    const Key likeliest = found == 0 ? key_of(minus_infinity(), 0) : shared.ranked[0];
    // One that is no number, or no token at all, leaves nothing to weigh.
    if (!(fabsf(logit_of(likeliest)) < infinity()) || draw.temperature == 0.0f) {
        if (thread == 0) give(out, likeliest);
        return;
    }
    if (thread < found) {
        const double below = (double)logit_of(shared.ranked[thread]) - logit_of(shared.ranked[0]);
        shared.weight[thread] = exp(below / draw.temperature);
        shared.plain[thread] = exp(below);
    }
    sync_block();
    if (thread == 0) filter(shared, p, draw, tops, found);
    sync_block();
    if (shared.kept == 0) return open_row(p, shared.ranked[0], out);
    if (thread < shared.kept) {
        const double share = (float)(shared.weight[thread] / shared.total);
        const unsigned id = id_of(shared.ranked[thread]);
        shared.arrival[thread] = -log(uniform(draw.seed, draw.position, id)) / share;
    }
    sync_block();
    if (thread == 0) {
        int first = 0;
        for (int i = 1; i < shared.kept; i++)
            if (shared.arrival[i] < shared.arrival[first]) first = i;
        give(out, shared.ranked[first]);
    }
}

KERNEL(draw_tokens, THREADS, 2, sizeof(Shared), DrawParams, draw_token)
