// Parameters of the kernels, one struct each, as kernels/src/params.rs has them. Pointers first, so
// that no padding hides between the fields; sizes are checked on both sides.
#pragma once

// Rows of a segment that can form a tree: one bit each in a word of ancestors.
constexpr int TREE_ROWS = 64;
// Tokens per cache block.
constexpr int BLOCK_TOKENS = 16;
// Width of a key and of a value head of a gated-delta-net layer.
constexpr int GDN_DIM = 128;
// Columns of the state that one block of threads works on, for few rows and for many.
constexpr int GDN_COLUMNS = 32;
constexpr int GDN_MANY_COLUMNS = 64;
// Bytes kept of a chunk of a prompt, of each value head and each key head (gdn_chunk.cuh).
constexpr int PREFILL_HEAD_BYTES = 82432;
constexpr int PREFILL_KEY_BYTES = 65536;
// Layers that one launch commits.
constexpr int MOST_LAYERS = 64;
// Taps of the convolution, and most rows of a warp that prepares.
constexpr int TAPS = 4;
constexpr int PREPARE_ROWS = 8;
// Packed (row, query head) pairs of one attention tile.
constexpr int ATTENTION_ROWS = 64;
// The same of a tile of attention_wide.cu, and the keys that it takes at a time.
constexpr int ATTENTION_WIDE_ROWS = 128;
constexpr int ATTENTION_WIDE_KEYS = 80;
// The same of attention_few.cu by the width of a head, of trees of many rows, and the keys that it takes at a time.
constexpr int ATTENTION_FEW_ROWS_256 = 16;
constexpr int ATTENTION_TREE_ROWS_256 = 32;
constexpr int ATTENTION_FEW_ROWS_128 = 32;
constexpr int ATTENTION_FEW_KEYS = 64;
// Most parts that the keys of attention are split into.
constexpr int MOST_SPLITS = 64;
// Threads of a block that adds them up; of more than MERGE_FEW parts, in so many lines.
constexpr int MERGE_THREADS = 256;
constexpr int MERGE_FEW = 8;
constexpr int MERGE_LINES = 4;
// Outputs and inputs of one unit of a product of few rows.
constexpr int LINEAR_OUT = 64;
constexpr int LINEAR_WIDE_OUT = 128;
constexpr int LINEAR_DEPTH = 128;

// Widest row of a norm.
constexpr int NORM_WIDTH = 8192;
// Largest logits of a row that are looked for.
constexpr int CANDIDATES = 64;
// Values that are known of a row of logits: the candidates' logits, their ids, the log of all exponentials.
constexpr int TOP_WIDTH = 2 * CANDIDATES + 1;
// Columns of one slice of a row of logits, groups that they form, and most slices.
constexpr int TOP_SLICE = 8192;
constexpr int TOP_GROUPS = 256;
constexpr int TOP_SLICES = 64;
// Columns of a slice of a row that tokens are drawn from; digits of a key, and values that one has.
constexpr int DRAW_SLICE = 4096;
constexpr int CUT_DIGITS = 5;
constexpr int CUT_BINS = 2048;

// Trees that one launch grows.
constexpr int MOST_TREES = 32;
// Threads of a block that places draws.
constexpr int PLACE_THREADS = 128;

// Most devices of a group.
constexpr int MOST_RANKS = 8;
// Bit of an index that says where the index is.
constexpr unsigned DRAWN = 1u << 31;

struct Segment {
    int first;       // first row
    int rows;        // number of rows
    int slot;        // slot of the states
    int past;        // committed tokens
    int blocks;      // first entry of the block table
    int tree;        // whether the rows are a tree
};
static_assert(sizeof(Segment) == 24, "mirrored in params.rs");

// Tables of a pass in device memory.
struct Tables {
    const Segment *segments;
    const int *row_segment;
    const int *row_position;                  // position in the text
    const int *row_parent;                    // within the segment, -1 for the context
    const unsigned *row_place;                // token's place in the cache
    const unsigned long long *row_ancestors;  // bit j: row j of the segment is an ancestor or self
    const unsigned *blocks;                   // block tables
    const int *kept_counts;                   // kept rows of each segment
    const int *kept;                          // from the segment's first row on: which, within the segment
};
static_assert(sizeof(Tables) == 72, "mirrored in params.rs");

// How a rank reaches the others. A mailbox holds three buffers of one slot per sender.
struct Exchange {
    void *mailboxes[MOST_RANKS];  // by rank
    unsigned *state;     // ExchangeState of exchange.cu
    unsigned *poison;    // in host memory, not zero once a rank has given up
    long long patience_ns;
    int rank;
    int ranks;
    int slot_units;  // units of 16 bytes of a slot
    int padding;
};
static_assert(sizeof(Exchange) == 104, "mirrored in params.rs");

struct ReduceParams {
    Exchange exchange;
    const void *x;   // bf16 [rows, width], this rank's part
    void *residual;  // bf16, or null
    const void *weight;
    void *out;  // bf16
    int rows;
    int width;
    int weight_f32;  // else bf16
    float shift;     // added to the weight
    float eps;
    int padding;
};
static_assert(sizeof(ReduceParams) == 160, "mirrored in params.rs");

struct AllGatherParams {
    Exchange exchange;
    const void *x;
    void *out;
    int rows;
    int words;  // of 4 bytes per row of `x`
};
static_assert(sizeof(AllGatherParams) == 128, "mirrored in params.rs");

// Words for the device, by value.
template <int size>
struct WriteParams {
    void *to;
    int words;
    int padding;
    unsigned data[size];
};
constexpr int SMALL_WRITE = 252;
constexpr int LARGE_WRITE = 1004;
using SmallWriteParams = WriteParams<SMALL_WRITE>;
using LargeWriteParams = WriteParams<LARGE_WRITE>;
static_assert(sizeof(SmallWriteParams) == 1024, "mirrored in params.rs");
static_assert(sizeof(LargeWriteParams) == 4032, "mirrored in params.rs");

// Parts that one read takes to the host.
constexpr int LAND_PARTS = 4;

struct LandParams {
    const unsigned *from[LAND_PARTS];
    unsigned *to;            // in the host's memory, one part behind the other
    int ends[LAND_PARTS];    // of the parts, in words of 4 bytes
};
static_assert(sizeof(LandParams) == 56, "mirrored in params.rs");

struct GatherParams {
    const void *from;
    const unsigned *index;
    const float *drawn;  // [rows, 2], what an index with bit DRAWN stands for; or null
    void *out;
    int row_units;   // units of 16 (or 2) bytes per row
    unsigned first;  // subtracted from the index
    unsigned limit;  // rows of `from`
    int padding;
};
static_assert(sizeof(GatherParams) == 48, "mirrored in params.rs");

struct CopyParams {
    const void *from;
    void *out;
    int rows;
    int row_units;   // units of 16 (or 2) bytes per row of `from`
    int out_units;   // per row of `out`
    int out_column;  // in units
};
static_assert(sizeof(CopyParams) == 32, "mirrored in params.rs");

struct NoiseParams {
    void *out;         // bf16
    long long values;  // a multiple of 8
    unsigned seed;
    float scale;
};
static_assert(sizeof(NoiseParams) == 24, "mirrored in params.rs");

struct ReadParams {
    const void *from;
    void *out;
    long long units;  // of 16 bytes
};
static_assert(sizeof(ReadParams) == 24, "mirrored in params.rs");

struct LinearParams {
    const void *x;   // bf16 [rows, input]
    const void *w;   // bf16 [output, input]
    void *out;       // bf16 or f32 [rows, output]
    float *partial;  // a tile per block
    int *arrivals;   // per tile, zero between launches
    int rows;
    int input;
    int output;
    int out_f32;
};
static_assert(sizeof(LinearParams) == 56, "mirrored in params.rs");

struct NormParams {
    const void *x;   // bf16; the delta when there is a residual
    void *residual;  // bf16 or null
    const void *weight;
    void *out;  // bf16 or null
    int width;
    int weight_f32;  // else bf16
    float shift;     // added to the weight
    float eps;
};
static_assert(sizeof(NormParams) == 48, "mirrored in params.rs");

struct SwigluParams {
    const void *x;
    void *out;
    int rows;
    int width;  // of out
};
static_assert(sizeof(SwigluParams) == 24, "mirrored in params.rs");

struct GatedNormParams {
    const void *x;     // bf16 [rows, heads * GDN_DIM]
    const void *gate;  // bf16, z inside the packed projection
    const void *weight;
    void *out;
    int rows;
    int heads;
    int gate_stride;
    int weight_f32;
    float eps;
    int padding;
};
static_assert(sizeof(GatedNormParams) == 56, "mirrored in params.rs");

struct GdnPrepareParams {
    Tables tables;
    const void *proj;  // bf16
    const float *conv_w;
    const float *a_log;
    const float *dt_bias;
    const void *conv_state;  // bf16
    float *q;
    float *k;
    float *v;
    float *g;
    float *beta;
    int rows;
    int key_heads;
    int value_heads;
    int padding;
};
static_assert(sizeof(GdnPrepareParams) == 168, "mirrored in params.rs");

struct ConvCommitParams {
    Tables tables;
    const void *proj;  // bf16
    void *conv_state;  // bf16
    int channels;
    int proj_stride;
};
static_assert(sizeof(ConvCommitParams) == 96, "mirrored in params.rs");

// Shared by verify and commit, and in GdnPrefillParams.
struct GdnParams {
    Tables tables;
    const float *q;
    const float *k;
    const float *v;
    const float *g;
    const float *beta;
    float *u;
    float *state;
    void *out;  // bf16
    int key_heads;
    int value_heads;
};
static_assert(sizeof(GdnParams) == 144, "mirrored in params.rs");

struct GdnPrefillParams {
    GdnParams rows;
    void *head_chunks;  // [segments, chunks, value heads] of PREFILL_HEAD_BYTES
    void *key_chunks;   // [segments, chunks, key heads] of PREFILL_KEY_BYTES
    int first_segment;  // of this launch
    int first_chunk;    // of each segment
    int chunks;
    int padding;
};
static_assert(sizeof(GdnPrefillParams) == 176, "mirrored in params.rs");

// What a commit moves of one layer.
struct CommitLayer {
    const float *k;
    const float *g;
    const float *u;
    float *state;
    const void *proj;  // bf16
    void *conv_state;  // bf16
};
static_assert(sizeof(CommitLayer) == 48, "mirrored in params.rs");

struct CommitLayersParams {
    Tables tables;
    CommitLayer layers[MOST_LAYERS];
    int key_heads;
    int value_heads;
    int segments;
    int padding;
};
static_assert(sizeof(CommitLayersParams) == 3160, "mirrored in params.rs");

struct AttentionPrepareParams {
    Tables tables;
    const void *proj;  // bf16
    const void *q_norm;
    const void *k_norm;
    const float *inv_freq;
    void *q;       // bf16, null without queries
    void *keys;    // bf16
    void *values;  // bf16
    int rows;
    int heads;  // 0 without queries
    int kv_heads;
    int rotary_dim;
    int gated;
    int weight_f32;
    float shift;
    float eps;
    float rope_scale;
    int padding;
};
static_assert(sizeof(AttentionPrepareParams) == 168, "mirrored in params.rs");

struct AttentionParams {
    Tables tables;
    const void *q;       // bf16
    const void *gate;    // bf16, first gate inside the packed projection, or null
    const void *keys;    // bf16
    const void *values;  // bf16
    void *out;           // bf16
    float *partial;      // [splits, rows, heads, head_dim]
    float *partial_max;  // [splits, rows, heads, 2]: greatest score (base 2), sum; of no keys -inf, 0
    int rows;
    int heads;
    int kv_heads;
    int gate_stride;
    int splits;
    int causal;
    int window;  // 0: none
    int row_tiles;
};
static_assert(sizeof(AttentionParams) == 160, "mirrored in params.rs");

struct KvCommitParams {
    Tables tables;
    void *keys;
    void *values;
    int width;  // bf16 values per token
    int padding;
};
static_assert(sizeof(KvCommitParams) == 96, "mirrored in params.rs");

struct TopParams {
    const float *logits;       // [rows, width]
    unsigned long long *keys;  // [rows, slices, TOP_GROUPS]: a group's greatest
    float *sums;               // [rows, slices, 2]: greatest logit, sum of exponentials less it
    float *out;                // [rows, 2 * CANDIDATES + 1]
    int width;
    int columns;     // of each row that count
    int slices;
    unsigned first;  // token of the first column
};
static_assert(sizeof(TopParams) == 48, "mirrored in params.rs");

// How one token is drawn.
struct DrawRow {
    unsigned long long seed;
    unsigned long long position;
    float temperature;
    float top_p;
    float min_p;
    unsigned top_k;
};
static_assert(sizeof(DrawRow) == 32, "mirrored in params.rs");

// A row that its candidates do not decide, while it is drawn from. Keys are those of keys.cuh.
struct OpenRow {
    unsigned long long least;        // key of the last token that is kept
    unsigned long long chosen;       // digits of it that are found
    unsigned long long mass_before;  // weight of the tokens ahead of these digits
    unsigned long long total;        // weight that top-p is a share of, 0 while it is not known
    unsigned count_before;
    int arrived;    // blocks that have done their slice
    int open;       // else the row is decided
    float largest;  // logit
};
static_assert(sizeof(OpenRow) == 48, "mirrored in params.rs");

// The first token of a slice to arrive.
struct First {
    unsigned long long arrival;  // bits of an f64
    unsigned long long token;    // its id, then the bits of its logit
};
static_assert(sizeof(First) == 16, "mirrored in params.rs");

struct DrawParams {
    const float *tops;  // [rows, ranks, 2 * CANDIDATES + 1]
    const DrawRow *draws;
    float *out;           // a token's id and its logit per row
    const float *logits;  // [rows, width]; the others too null where all rows are decided without
    OpenRow *open;
    unsigned long long *masses;  // [rows, CUT_BINS]
    unsigned *counts;            // [rows, CUT_BINS]
    First *firsts;               // [rows, slices]
    int ranks;
    int width;
    int columns;  // of each row that count
    int digit;    // of the key, for a cut
    int by_mass;  // else by count
    int padding;
};
static_assert(sizeof(DrawParams) == 88, "mirrored in params.rs");

// A tree of drafts that is to grow.
struct GrowTree {
    int first;       // row of the candidates of its first depth
    int depth;
    int budget;      // nodes
    int seeded;      // whether it begins with the chain of the likeliest
    int candidates;  // of a row that are looked at
    int to;          // row of what comes out that its first node is in
    float scale;     // surprisal, in 2^-16 bits, of a difference of logits
    int padding;
};
static_assert(sizeof(GrowTree) == 32, "mirrored in params.rs");

struct GrowParams {
    const float *tops;  // [rows, ranks, 2 * CANDIDATES + 1]
    float *out;         // a token's id and its parent's row per row
    int ranks;
    int padding;
    GrowTree trees[MOST_TREES];
};
static_assert(sizeof(GrowParams) == 1048, "mirrored in params.rs");

// Tables of a pass whose trees were grown.
struct PlantParams {
    const Segment *segments;
    const float *drafts;  // as GrowParams::out
    int *row_parent;      // a row of the drafts where the sign is set, but for -1
    int *row_position;
    unsigned long long *row_ancestors;
};
static_assert(sizeof(PlantParams) == 40, "mirrored in params.rs");

// Positions of tokens that are drawn from rows whose depths were grown.
struct PlaceParams {
    DrawRow *draws;
    const int *row_position;  // of the first one's row
    int rows;
    int padding;
};
static_assert(sizeof(PlaceParams) == 24, "mirrored in params.rs");

// Where the walk of a segment ends.
struct WalkEnd {
    int most;        // rows
    int first_stop;  // tokens behind which nothing is kept
    int stops;       // and how many there are
};
static_assert(sizeof(WalkEnd) == 12, "mirrored in params.rs");

struct WalkParams {
    const Segment *segments;
    const int *row_parent;
    int *kept_counts;
    int *kept;
    const WalkEnd *ends;
    const unsigned *ids;  // tokens of the rows; one with bit DRAWN is in that row of the drafts
    const unsigned *stops;
    const float *drafts;  // [rows, 2]
    const float *chosen;  // tokens behind the rows: [rows, 2], or first candidates of [rows, ranks, TOP_WIDTH]
    float *out;           // [segments, 1 + TREE_ROWS]: how many rows are kept, and which
    int ranks;            // 0: drawn
    int padding;
};
static_assert(sizeof(WalkParams) == 88, "mirrored in params.rs");

struct GatherWalkedParams {
    Tables tables;
    const void *from;
    void *out;
    const unsigned *index;
    int row_units;  // units of 16 (or 2) bytes per row
    int padding;
};
static_assert(sizeof(GatherWalkedParams) == 104, "mirrored in params.rs");

// The logit of one token: `bias` is added, what is positive then divided by `scale` and the rest multiplied
// by it, `penalty` subtracted.
struct TokenChange {
    unsigned token;
    float bias;
    float scale;
    float penalty;
};
static_assert(sizeof(TokenChange) == 16, "mirrored in params.rs");

// What is changed in one row.
struct EditRow {
    int first;    // its first change
    int changes;  // and how many there are
    int masked;   // whether it has a mask
    int mask;     // first word of it
    int words;    // and how many there are; later tokens are ruled out
    int padding;
};
static_assert(sizeof(EditRow) == 24, "mirrored in params.rs");

struct EditParams {
    float *logits;  // [rows, width]
    const EditRow *rows;
    const TokenChange *changes;
    const unsigned *masks;  // bit `token % 32` of word `token / 32`
    float *own;             // the logits that the changed tokens had
    float *drawn;           // a token's id and its logit per row
    int width;
    int padding;
};
static_assert(sizeof(EditParams) == 56, "mirrored in params.rs");
