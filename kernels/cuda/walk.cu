// Walks down verified drafts, and rows of those that were kept.
#include "keys.cuh"
#include "kept.cuh"

constexpr int GATHER_THREADS = 256;

struct Path {
    int parent[TREE_ROWS];
    unsigned token[TREE_ROWS];
    unsigned chosen[TREE_ROWS];
    int stops[TREE_ROWS];
    int next[TREE_ROWS];
};

// The likeliest token of a row of candidates, 0 where there is none.
DEVICE unsigned likeliest(const float *row, int ranks) {
    Key best = 0;
    for (int rank = 0; rank < ranks; rank++) {
        const float *top = row + rank * TOP_WIDTH;
        const Key key = top[0] > minus_infinity() ? key_of(top[0], (unsigned)top[CANDIDATES]) : 0;
        best = key > best ? key : best;
    }
    return best == 0 ? 0 : id_of(best);
}

// Whether an end has the token among those that nothing is kept behind.
DEVICE bool is_stop(const WalkParams &p, const WalkEnd &end, unsigned token) {
    for (int i = 0; i < end.stops; i++)
        if (p.stops[end.first_stop + i] == token) return true;
    return false;
}

// One block per segment, a thread per row: the row below each that holds the token chosen behind it; then from
// the first row on as far as there is one.
DEVICE void walk_rows(const WalkParams &p) {
    Path &path = shared_as<Path>();
    const int index = block_x(), i = thread_index();
    const Segment segment = p.segments[index];
    const WalkEnd end = p.ends[index];
    if (i < segment.rows) {
        const long long row = segment.first + i;
        unsigned token = p.ids[row];
        if (token & DRAWN) token = (unsigned)p.drafts[2 * (token ^ DRAWN)];
        const unsigned chosen = p.ranks == 0 ? (unsigned)p.chosen[2 * row]
                                             : likeliest(p.chosen + row * p.ranks * TOP_WIDTH, p.ranks);
        path.parent[i] = p.row_parent[row];
        path.token[i] = token;
        path.chosen[i] = chosen;
        path.stops[i] = is_stop(p, end, chosen);
    }
    sync_block();
    if (i < segment.rows) {
        int next = -1;
        for (int below = segment.rows - 1; below > i; below--)
            if (path.parent[below] == i && path.token[below] == path.chosen[i]) next = below;
        path.next[i] = path.stops[i] ? -1 : next;
    }
    sync_block();
    if (i > 0) return;
    int *kept = p.kept + segment.first;
    float *out = p.out + (long long)index * (1 + TREE_ROWS);
    int count = 0;
    for (int row = 0; row >= 0 && count < end.most; row = path.next[row]) {
        kept[count++] = row;
        out[count] = (float)row;
    }
    p.kept_counts[index] = count;
    out[0] = (float)count;
}

// out[i] = a kept row: the index has its segment times TREE_ROWS, and its place on the way. One block per row.
template <class Unit>
DEVICE void gather_walked(const GatherWalkedParams &p) {
    const unsigned index = p.index[block_x()];
    const int segment = index / TREE_ROWS, place = index % TREE_ROWS;
    const int first = p.tables.segments[segment].first;
    const Kept kept = kept_of(p.tables, segment, first);
    const long long row = first + kept.rows[min_of(place, kept.count - 1)];
    const long long out = (long long)block_x() * p.row_units, from = row * p.row_units;
    for (int i = thread_index(); i < p.row_units; i += GATHER_THREADS)
        store<Unit>(p.out, out + i, load<Unit>(p.from, from + i));
}

KERNEL(walk_segments, TREE_ROWS, 1, sizeof(Path), WalkParams, walk_rows)
KERNEL(gather_walked_16, GATHER_THREADS, 1, 0, GatherWalkedParams, gather_walked<Bytes16>)
KERNEL(gather_walked_2, GATHER_THREADS, 1, 0, GatherWalkedParams, gather_walked<bf16>)
