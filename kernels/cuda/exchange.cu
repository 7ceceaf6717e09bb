// Collectives over memory that all ranks can write. A rank pushes its data into a slot of its own in
// each other rank's mailbox and polls its own mailbox. The data are their own flags: words are stored
// inverted, and a zero word has not arrived. Every rank sums in rank order, to the same bits.
//
// Three buffers take turns. A call clears the buffer of the call before, which this rank has read
// whole; others write there two calls later, and only once they have this rank's data of the next
// call, which it sends after the clearing. What turn it is stands in device memory, so that calls can
// be recorded and ranks may run apart.
#include "device.cuh"
#include "params.h"

constexpr int THREADS = 640;
// Units of 16 bytes of a row that a thread holds.
constexpr int UNITS = 2;
constexpr int BUFFERS = 3;

struct ExchangeState {
    unsigned buffer;
    int arrivals;            // blocks that are done with this call
    unsigned used[BUFFERS];  // units of 16 bytes to be cleared
    unsigned lost;           // what the poison word said when it was looked at
    long long next_look;     // when to look again, in nanoseconds
};
// Nanoseconds between two looks at the poison word.
constexpr long long LOOK_EVERY = 1000000;

struct ExchangeShared {
    float sums[THREADS / 32];
};

struct Turn {
    int buffer;
    int clear;
    unsigned used;  // of `clear`
};

DEVICE Turn begin(const Exchange &e) {
    const ExchangeState *state = reinterpret_cast<const ExchangeState *>(e.state);
    const unsigned buffer = state->buffer, clear = (buffer + BUFFERS - 1) % BUFFERS;
    return Turn{(int)buffer, (int)clear, state->used[clear]};
}

// Ends a call that filled `units` of each slot.
DEVICE void end(const Exchange &e, const Turn &turn, int units) {
    sync_block();
    ExchangeState *state = reinterpret_cast<ExchangeState *>(e.state);
    if (thread_index() != 0 || count_up(&state->arrivals) != grid_x() - 1) return;
    state->arrivals = 0;
    state->used[turn.buffer] = (unsigned)units;
    state->used[turn.clear] = 0;
    state->buffer = (unsigned)((turn.buffer + 1) % BUFFERS);
}

// First unit of the slot of `sender`.
DEVICE long long slot(const Exchange &e, int buffer, int sender) {
    return (long long)(buffer * e.ranks + sender) * e.slot_units;
}

DEVICE Bytes16 *unit_at(const Exchange &e, int owner, long long at) {
    return reinterpret_cast<Bytes16 *>(e.mailboxes[owner]) + at;
}

DEVICE unsigned *word_at(const Exchange &e, int owner, long long slot, long long at) {
    return reinterpret_cast<unsigned *>(unit_at(e, owner, slot)) + at;
}

// A word as it travels: never zero. All ones, a NaN, become another NaN.
DEVICE unsigned to_wire(unsigned word) { return word == 0xffffffffu ? 0x80008000u : ~word; }
DEVICE unsigned from_wire(unsigned word) { return ~word; }

DEVICE void send(const Exchange &e, long long at, Bytes16 x) {
#pragma unroll
    for (int i = 0; i < 4; i++) x.word[i] = to_wire(x.word[i]);
    for (int rank = 0; rank < e.ranks; rank++)
        if (rank != e.rank) store_system(unit_at(e, rank, at), x.word);
}

DEVICE void clear(const Exchange &e, const Turn &turn) {
    const unsigned nothing[4] = {0, 0, 0, 0};
    for (int sender = 0; sender < e.ranks; sender++) {
        if (sender == e.rank) continue;
        const long long first = slot(e, turn.clear, sender);
        const unsigned step = (unsigned)(grid_x() * THREADS);
        for (unsigned i = block_x() * THREADS + thread_index(); i < turn.used; i += step)
            store_system(unit_at(e, e.rank, first + i), nothing);
    }
}

// Looks at the poison word, which is the host's, for all threads of the rank: many that read it at once
// take a millisecond, by which the rank is late, so that the threads of the others would read it too,
// and so on.
DEVICE bool is_lost(const Exchange &e, long long now) {
    ExchangeState *state = reinterpret_cast<ExchangeState *>(e.state);
    const long long look = load_fresh(&state->next_look);
    if (now >= look && claim(&state->next_look, look, now + LOOK_EVERY) &&
        load_system(e.poison) != 0)
        store_system(&state->lost, 1u);
    return load_system(&state->lost) != 0;
}

// A thread's patience with the other ranks.
struct Patience {
    int looks = 0;
    long long begun = 0;
    bool lost = false;

    // Whether to look again. Gives up, and tells all ranks so, when the time is over.
    DEVICE bool again(const Exchange &e) {
        if (lost) return false;
        relax();
        if (++looks % LOOKS_PER_CLOCK != 0) return true;
        const long long now = nanoseconds();
        if (begun == 0) begun = now;
        if (now - begun > e.patience_ns) store_system(e.poison, (unsigned)e.rank + 1);
        lost = is_lost(e, now);
        return !lost;
    }

    DEVICE void arrived() { begun = 0; }
};

DEVICE Bytes16 receive(const Exchange &e, long long at, Patience &patience) {
    const Bytes16 *from = unit_at(e, e.rank, at);
    Bytes16 x;
    do {
        load_system(from, x.word);
    } while ((x.word[0] == 0 || x.word[1] == 0 || x.word[2] == 0 || x.word[3] == 0) &&
             patience.again(e));
    patience.arrived();
#pragma unroll
    for (int i = 0; i < 4; i++) x.word[i] = from_wire(x.word[i]);
    return x;
}

DEVICE unsigned receive_word(const Exchange &e, const unsigned *from, Patience &patience) {
    unsigned x;
    do x = load_system(from);
    while (x == 0 && patience.again(e));
    patience.arrived();
    return from_wire(x);
}

DEVICE Floats8 norm_weight(const ReduceParams &p, int i) {
    if (!p.weight_f32) return widen(load<Bytes16>(p.weight, i));
    const Float4 a = load<Float4>(p.weight, 2 * i), b = load<Float4>(p.weight, 2 * i + 1);
    Floats8 w;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        w.at[j] = a.at[j];
        w.at[4 + j] = b.at[j];
    }
    return w;
}

// Sum over the block, the same bits in each thread.
DEVICE float sum_of_block(float x, ExchangeShared &shared) {
    x = warp_sum(x);
    if (thread_index() % 32 == 0) shared.sums[thread_index() / 32] = x;
    sync_block();
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++) sum += shared.sums[i];
    sync_block();
    return sum;
}

// Rows block by block, all sent before any is waited for; all blocks run at the same time. Without a
// norm, out is the sum; with one, residual += sum and out is the norm of the residual as stored.
template <bool norm>
DEVICE void reduce_rows(const ReduceParams &p) {
    const Exchange &e = p.exchange;
    const int units = p.width / 8, thread = thread_index();
    Floats8 w[UNITS] = {}, x[UNITS];
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        const int i = thread + k * THREADS;
        if (norm && i < units) w[k] = norm_weight(p, i);
    }
    wait_for_earlier();
    const Turn turn = begin(e);
    const long long mine = slot(e, turn.buffer, e.rank);
    for (int row = block_x(); row < p.rows; row += grid_x()) {
        const long long first = (long long)row * units;
#pragma unroll
        for (int k = 0; k < UNITS; k++) {
            const int i = thread + k * THREADS;
            if (i < units) send(e, mine + first + i, load<Bytes16>(p.x, first + i));
        }
    }
    clear(e, turn);

    Patience patience;
    for (int row = block_x(); row < p.rows; row += grid_x()) {
        const long long first = (long long)row * units;
        float squares = 0.0f;
#pragma unroll
        for (int k = 0; k < UNITS; k++) {
            const int i = thread + k * THREADS;
            if (i >= units) continue;
            Floats8 before = {};
            if (norm) before = widen(load<Bytes16>(p.residual, first + i));
            for (int rank = 0; rank < e.ranks; rank++) {
                const Floats8 part = widen(
                    rank == e.rank
                        ? load<Bytes16>(p.x, first + i)
                        : receive(e, slot(e, turn.buffer, rank) + first + i, patience));
#pragma unroll
                for (int j = 0; j < 8; j++)
                    x[k].at[j] = rank == 0 ? part.at[j] : x[k].at[j] + part.at[j];
            }
            if (norm) {
#pragma unroll
                for (int j = 0; j < 8; j++) x[k].at[j] += before.at[j];
            }
            const Bytes16 sum = narrow(x[k]);
            store<Bytes16>(norm ? p.residual : p.out, first + i, sum);
            if (norm) {
                x[k] = widen(sum);
#pragma unroll
                for (int j = 0; j < 8; j++) squares += x[k].at[j] * x[k].at[j];
            }
        }
        if (!norm) continue;
        const float mean = sum_of_block(squares, shared_as<ExchangeShared>()) / (float)p.width;
        const float scale = 1.0f / sqrtf(mean + p.eps);
#pragma unroll
        for (int k = 0; k < UNITS; k++) {
            const int i = thread + k * THREADS;
            if (i >= units) continue;
#pragma unroll
            for (int j = 0; j < 8; j++)
                x[k].at[j] = x[k].at[j] * scale * (p.shift + w[k].at[j]);
            store<Bytes16>(p.out, first + i, narrow(x[k]));
        }
    }
    end(e, turn, p.rows * units);
}

// out[row] = the ranks' rows side by side.
DEVICE void all_gather(const AllGatherParams &p) {
    const Exchange &e = p.exchange;
    const unsigned *x = reinterpret_cast<const unsigned *>(p.x);
    unsigned *out = reinterpret_cast<unsigned *>(p.out);
    const Turn turn = begin(e);
    const int words = p.rows * p.words, step = grid_x() * THREADS;
    const long long mine = slot(e, turn.buffer, e.rank);
    for (int i = block_x() * THREADS + thread_index(); i < words; i += step) {
        const unsigned word = to_wire(x[i]);
        for (int rank = 0; rank < e.ranks; rank++)
            if (rank != e.rank) store_system(word_at(e, rank, mine, i), word);
    }
    clear(e, turn);
    Patience patience;
    for (int i = block_x() * THREADS + thread_index(); i < words; i += step) {
        const int row = i / p.words, column = i % p.words;
        for (int rank = 0; rank < e.ranks; rank++) {
            const unsigned word =
                rank == e.rank
                    ? from_wire(to_wire(x[i]))
                    : receive_word(e, word_at(e, e.rank, slot(e, turn.buffer, rank), i), patience);
            out[((long long)row * e.ranks + rank) * p.words + column] = word;
        }
    }
    end(e, turn, ceil_div(words, 4));
}

KERNEL_AHEAD(all_reduce_rows, THREADS, 1, sizeof(ExchangeShared), ReduceParams, reduce_rows<false>)
KERNEL_AHEAD(reduce_add_rms_norm_rows, THREADS, 1, sizeof(ExchangeShared), ReduceParams,
             reduce_rows<true>)
KERNEL(all_gather_words, THREADS, 1, 0, AllGatherParams, all_gather)
