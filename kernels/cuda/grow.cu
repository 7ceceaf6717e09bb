// Trees of drafts: the prefixes of least surprisal over rows of candidates, and the tables of a pass over them.
#include "device.cuh"
#include "keys.cuh"
#include "params.h"

constexpr int THREADS = 512, WARPS = THREADS / 32;
// Units of a bit; most of them that a token is behind the likeliest one; a weight of 1.
constexpr unsigned BIT = 1u << 16, MOST_BEHIND = 60 * BIT;
constexpr unsigned long long ONE = 1ull << 30;

// A prefix that may be added: surprisal, then order, then its place among the open ones; the least comes first.
typedef unsigned long long Open;
constexpr Open NONE = ~0ull;
static_assert(TREE_ROWS == 64, "two open prefixes a lane, six bits of a place");

struct Shared {
    float logit[TREE_ROWS][CANDIDATES];        // by depth and rank
    unsigned token[TREE_ROWS][CANDIDATES];
    unsigned surprisal[TREE_ROWS][CANDIDATES];
    Open open[TREE_ROWS];
    unsigned link[TREE_ROWS];                  // of an open prefix (Link)
};

// The last token of a prefix by depth and rank, and the row of what is before it.
struct Link {
    int parent, depth, rank;
};

DEVICE unsigned pack(const Link &link) {
    return (unsigned)link.parent << 16 | (unsigned)link.depth << 8 | (unsigned)link.rank;
}
DEVICE Link unpack(unsigned word) {
    return {(int)(word >> 16), (int)(word >> 8 & 255), (int)(word & 255)};
}

DEVICE Key key_at(const float *top, int i) {
    return top[i] > minus_infinity() ? key_of(top[i], (unsigned)top[CANDIDATES + i]) : 0;
}

// How many candidates of a rank, greatest first, are greater.
DEVICE int count_greater(const float *top, Key key) {
    int low = 0, high = CANDIDATES;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (key_at(top, middle) > key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// The candidates of all ranks by depth and rank; places without one have token 0.
DEVICE void order(Shared &shared, const float *tops, const GrowTree &tree, int ranks) {
    const int places = tree.depth * CANDIDATES;
    for (int i = thread_index(); i < places; i += THREADS) {
        shared.logit[i / CANDIDATES][i % CANDIDATES] = minus_infinity();
        shared.token[i / CANDIDATES][i % CANDIDATES] = 0;
    }
    sync_block();
    for (int i = thread_index(); i < places * ranks; i += THREADS) {
        const int depth = i / (CANDIDATES * ranks), mine = i / CANDIDATES % ranks, place = i % CANDIDATES;
        const float *row = tops + ((long long)(tree.first + depth) * ranks) * TOP_WIDTH;
        const Key key = key_at(row + mine * TOP_WIDTH, place);
        int rank = place;
        for (int other = 0; other < ranks; other++)
            if (other != mine) rank += count_greater(row + other * TOP_WIDTH, key);
        if (key == 0 || rank >= CANDIDATES) continue;
        shared.logit[depth][rank] = logit_of(key);
        shared.token[depth][rank] = id_of(key);
    }
    sync_block();
}

// 2^-bits in units of 2^-30, a cubic between whole bits.
DEVICE unsigned long long weight_of(unsigned bits) {
    const unsigned long long part = bits % BIT;
    const unsigned long long inner = 248207216ull - (part * 42480028ull >> 16);
    const unsigned long long outer = 742598100ull - (part * inner >> 16);
    return (ONE - (part * outer >> 16)) >> bits / BIT;
}

// Units of the logarithm of a sum of weights; 0 below ONE.
DEVICE unsigned log2_of(unsigned long long sum) {
    unsigned whole = 30;
    while (sum >> whole > 1) whole++;
    if (sum < ONE) sum = ONE;
    const unsigned part = (unsigned)(sum >> (whole - 16)) % BIT;
    const unsigned bend = (part * (BIT - part) >> 16) * (27582u - (part * 10249u >> 16)) >> 16;
    return (whole - 30) * BIT + part + bend;
}

// A warp per depth; two candidates a lane.
DEVICE void weigh(Shared &shared, const GrowTree &tree) {
    const int lane = thread_index() % 32;
    for (int depth = thread_index() / 32; depth < tree.depth; depth += WARPS) {
        const float largest = shared.logit[depth][0];
        unsigned behind[2];
        unsigned long long sum = 0;
        for (int i = 0; i < 2; i++) {
            const int rank = lane + 32 * i;
            const float units = rounded_product(largest - shared.logit[depth][rank], tree.scale);
            behind[i] = units < (float)MOST_BEHIND ? (unsigned)units : MOST_BEHIND;
            if (rank < tree.candidates) sum += weight_of(behind[i]);
        }
        for (int lanes = 16; lanes > 0; lanes /= 2) sum += shuffle_xor(sum, lanes);
        const unsigned total = log2_of(sum);
        for (int i = 0; i < 2; i++) shared.surprisal[depth][lane + 32 * i] = behind[i] + total;
    }
    sync_block();
}

// The surprisal of a prefix that ends so, behind `above`, as one that may be added at a place; NONE where there
// is no such candidate.
DEVICE Open open_of(const Shared &shared, const GrowTree &tree, const Link &link, unsigned above, int order,
                    int place) {
    if (link.depth >= tree.depth || link.rank >= tree.candidates) return NONE;
    const unsigned surprisal = above + shared.surprisal[link.depth][link.rank];
    return (Open)surprisal << 32 | (Open)order << 8 | (Open)place;
}

DEVICE void give(const GrowParams &p, const Shared &shared, const GrowTree &tree, int node, const Link &link) {
    float *out = p.out + 2 * (tree.to + node);
    out[0] = (float)shared.token[link.depth][link.rank];
    out[1] = (float)link.parent;
}

// The chain of the likeliest, whose siblings may be added then; by one lane.
DEVICE void add_chain(const GrowParams &p, Shared &shared, const GrowTree &tree, int nodes) {
    unsigned above = 0;
    for (int node = 0; node < nodes; node++) {
        const Link sibling = {node, node, 1};
        give(p, shared, tree, node, {node, node, 0});
        shared.open[node] = open_of(shared, tree, sibling, above, node, node);
        shared.link[node] = pack(sibling);
        above += shared.surprisal[node][0];
    }
}

// The nodes one after the other, by one warp: the first open prefix gives way to its sibling, its child takes
// a new place.
DEVICE void add_nodes(const GrowParams &p, Shared &shared, const GrowTree &tree) {
    const int lane = thread_index();
    for (int i = lane; i < TREE_ROWS; i += 32) shared.open[i] = NONE;
    sync_warp();
    int nodes = 0, places = 1;
    if (tree.seeded) {
        nodes = tree.depth < tree.budget ? tree.depth : tree.budget;
        places = nodes;
        if (lane == 0) add_chain(p, shared, tree, nodes);
    } else if (lane == 0) {
        const Link root = {0, 0, 0};
        shared.open[0] = open_of(shared, tree, root, 0, 0, 0);
        shared.link[0] = pack(root);
    }
    sync_warp();
    for (int order = TREE_ROWS; nodes < tree.budget; nodes++, places++, order += 2) {
        const Open low = shared.open[lane], high = shared.open[lane + 32];
        sync_warp();
        Open first = low < high ? low : high;
        for (int lanes = 16; lanes > 0; lanes /= 2) {
            const Open other = shuffle_xor(first, lanes);
            first = other < first ? other : first;
        }
        if (lane == 0) {
            const int place = (int)(first % TREE_ROWS);
            const Link link = unpack(shared.link[place]);
            const Link sibling = {link.parent, link.depth, link.rank + 1};
            const Link child = {nodes + 1, link.depth + 1, 0};
            const unsigned surprisal = (unsigned)(first >> 32);
            const unsigned above = surprisal - shared.surprisal[link.depth][link.rank];
            const Open next = open_of(shared, tree, sibling, above, order, place);
            const Open behind = open_of(shared, tree, child, surprisal, order + 1, places);
            give(p, shared, tree, nodes, link);
            shared.open[place] = next;
            shared.link[place] = pack(sibling);
            shared.open[places] = behind;
            shared.link[places] = pack(child);
        }
        sync_warp();
    }
}

// One block per tree.
DEVICE void grow_tree(const GrowParams &p) {
    Shared &shared = shared_as<Shared>();
    const GrowTree &tree = p.trees[block_x()];
    order(shared, p.tops, tree, p.ranks);
    weigh(shared, tree);
    if (thread_index() < 32) add_nodes(p, shared, tree);
}

struct Parents {
    int row[TREE_ROWS];
};

// Parents that are known by their rows of drafts only, and what follows from them. One block per segment, a
// thread per row.
DEVICE void plant_tree(const PlantParams &p) {
    Parents &parents = shared_as<Parents>();
    const Segment segment = p.segments[block_x()];
    if (!segment.tree) return;
    const int i = thread_index(), row = segment.first + i;
    if (i < segment.rows) {
        int parent = p.row_parent[row];
        if (parent < -1) parent = (int)p.drafts[2 * (parent & 0x7fffffff) + 1];
        parents.row[i] = parent < i ? parent : i - 1;
    }
    sync_block();
    if (i >= segment.rows) return;
    unsigned long long ancestors = 0;
    int depth = -1;
    for (int above = i; above >= 0; above = parents.row[above]) {
        ancestors |= 1ull << above;
        depth++;
    }
    p.row_parent[row] = parents.row[i];
    p.row_position[row] = segment.past + depth;
    p.row_ancestors[row] = ancestors;
}

// Draws whose position is the one behind their row's.
DEVICE void place_draw(const PlaceParams &p) {
    const int i = block_x() * PLACE_THREADS + thread_index();
    if (i < p.rows && p.draws[i].position == ~0ull)
        p.draws[i].position = (unsigned long long)p.row_position[i] + 1;
}

KERNEL(grow_trees, THREADS, 1, sizeof(Shared), GrowParams, grow_tree)
KERNEL(plant_trees, TREE_ROWS, 1, sizeof(Parents), PlantParams, plant_tree)
KERNEL(place_draws, PLACE_THREADS, 1, 0, PlaceParams, place_draw)
