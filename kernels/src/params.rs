//! Parameters of the kernels, one struct each, as kernels/cuda/params.h has them.

use volley_ops::{Change, Draw, Growth};

use crate::driver::Address;

/// Rows of a segment that can form a tree: one bit each in a word of ancestors.
pub const TREE_ROWS: usize = 64;
/// Tokens per cache block.
pub const BLOCK_TOKENS: usize = 16;
/// Width of a key and of a value head of a gated-delta-net layer.
pub const GDN_DIM: usize = 128;
/// Columns of the state that one block of threads works on, for few rows and for many.
pub const GDN_COLUMNS: usize = 32;
pub const GDN_MANY_COLUMNS: usize = 64;
/// Rows of a chunk of a prompt in a gated-delta-net layer.
pub const PREFILL_ROWS: usize = 64;
/// Bytes kept of a chunk, of each value head.
pub const PREFILL_HEAD_BYTES: usize = 82_432;
/// Bytes kept of a chunk, of each key head.
pub const PREFILL_KEY_BYTES: usize = 65_536;
/// Layers that one launch commits.
pub const MOST_LAYERS: usize = 64;
/// Taps of the convolution.
pub const TAPS: usize = 4;
/// Most rows of a warp of `gdn_prepare`.
pub const PREPARE_ROWS: usize = 8;
/// Packed (row, query head) pairs of one attention tile.
pub const ATTENTION_ROWS: usize = 64;
/// The same of a tile of `attention_wide`, and the keys that it takes at a time.
pub const ATTENTION_WIDE_ROWS: usize = 128;
pub const ATTENTION_WIDE_KEYS: usize = 80;
/// The same of `attention_few` by the width of a head, and the keys that it takes at a time.
pub const ATTENTION_FEW_ROWS_256: usize = 16;
pub const ATTENTION_TREE_ROWS_256: usize = 32;
pub const ATTENTION_FEW_ROWS_128: usize = 32;
pub const ATTENTION_FEW_KEYS: usize = 64;
/// Most parts that the keys of attention are split into.
pub const MOST_SPLITS: usize = 64;
/// Threads of a block that adds them up; of more than `MERGE_FEW` parts, in so many lines.
pub const MERGE_THREADS: usize = 256;
pub const MERGE_FEW: usize = 8;
pub const MERGE_LINES: usize = 4;
/// Outputs of one unit of a product of few rows.
pub const LINEAR_OUT: usize = 64;
/// As before, of more than 16 rows.
pub const LINEAR_WIDE_OUT: usize = 128;
/// Inputs of one unit of a product of few rows.
pub const LINEAR_DEPTH: usize = 128;
/// Widest row of a norm.
pub const NORM_WIDTH: usize = 8192;

/// Words that the parameters of a kernel bring along, and of another one.
pub const SMALL_WRITE: usize = 252;
pub const LARGE_WRITE: usize = 1004;
/// Most devices of a group.
pub const MOST_RANKS: usize = 8;
/// Columns of one slice of a row of logits.
pub const TOP_SLICE: usize = 8192;
/// Groups that they form.
pub const TOP_GROUPS: usize = 256;
/// Most slices of a row.
pub const TOP_SLICES: usize = 64;
/// Columns of a slice of a row that tokens are drawn from.
pub const DRAW_SLICE: usize = 4096;
/// Digits of a key, and values that one has.
pub const CUT_DIGITS: i32 = 5;
pub const CUT_BINS: usize = 2048;
/// Trees that one launch grows.
pub const MOST_TREES: usize = 32;
/// Threads of a block that places draws.
pub const PLACE_THREADS: usize = 128;
/// Parts that one read takes to the host.
pub const LAND_PARTS: usize = 4;
/// Bytes of a row that is drawn from, and of the first token of a slice.
pub const OPEN_ROW_BYTES: usize = 48;
pub const FIRST_BYTES: usize = 16;
const _: () = assert!(volley_ops::CANDIDATES == 64, "mirrored in params.h");
const _: () = assert!(volley_ops::DRAWN == 1 << 31, "mirrored in params.h");
const _: () = assert!(Draw::BEHIND_ROW == u64::MAX, "as grow.cu has it");

/// Declares a struct with C layout, its size as the C side checks it.
macro_rules! params {
    ($($(#[$doc:meta])* $name:ident ($size:literal) { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name { $(pub $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

params! {
    Segment (24) {
        first: i32,
        rows: i32,
        slot: i32,
        past: i32,
        blocks: i32,
        tree: i32,
    }
    Tables (72) {
        segments: Address,
        row_segment: Address,
        row_position: Address,
        row_parent: Address,
        row_place: Address,
        row_ancestors: Address,
        blocks: Address,
        kept_counts: Address,
        kept: Address,
    }
    Exchange (104) {
        mailboxes: [Address; MOST_RANKS],
        state: Address,
        poison: Address,
        patience_ns: i64,
        rank: i32,
        ranks: i32,
        slot_units: i32,
        padding: i32,
    }
    ReduceParams (160) {
        exchange: Exchange,
        x: Address,
        residual: Address,
        weight: Address,
        out: Address,
        rows: i32,
        width: i32,
        weight_f32: i32,
        shift: f32,
        eps: f32,
        padding: i32,
    }
    AllGatherParams (128) {
        exchange: Exchange,
        x: Address,
        out: Address,
        rows: i32,
        words: i32,
    }
    SmallWriteParams (1024) {
        to: Address,
        words: i32,
        padding: i32,
        data: [u32; SMALL_WRITE],
    }
    LargeWriteParams (4032) {
        to: Address,
        words: i32,
        padding: i32,
        data: [u32; LARGE_WRITE],
    }
    LandParams (56) {
        from: [Address; LAND_PARTS],
        to: Address,
        ends: [i32; LAND_PARTS],
    }
    GatherParams (48) {
        from: Address,
        index: Address,
        drawn: Address,
        out: Address,
        row_units: i32,
        first: u32,
        limit: u32,
        padding: i32,
    }
    CopyParams (32) {
        from: Address,
        out: Address,
        rows: i32,
        row_units: i32,
        out_units: i32,
        out_column: i32,
    }
    NoiseParams (24) {
        out: Address,
        values: i64,
        seed: u32,
        scale: f32,
    }
    ReadParams (24) {
        from: Address,
        out: Address,
        units: i64,
    }
    LinearParams (56) {
        x: Address,
        w: Address,
        out: Address,
        partial: Address,
        arrivals: Address,
        rows: i32,
        input: i32,
        output: i32,
        out_f32: i32,
    }
    NormParams (48) {
        x: Address,
        residual: Address,
        weight: Address,
        out: Address,
        width: i32,
        weight_f32: i32,
        shift: f32,
        eps: f32,
    }
    SwigluParams (24) {
        x: Address,
        out: Address,
        rows: i32,
        width: i32,
    }
    GatedNormParams (56) {
        x: Address,
        gate: Address,
        weight: Address,
        out: Address,
        rows: i32,
        heads: i32,
        gate_stride: i32,
        weight_f32: i32,
        eps: f32,
        padding: i32,
    }
    GdnPrepareParams (168) {
        tables: Tables,
        proj: Address,
        conv_w: Address,
        a_log: Address,
        dt_bias: Address,
        conv_state: Address,
        q: Address,
        k: Address,
        v: Address,
        g: Address,
        beta: Address,
        rows: i32,
        key_heads: i32,
        value_heads: i32,
        padding: i32,
    }
    ConvCommitParams (96) {
        tables: Tables,
        proj: Address,
        conv_state: Address,
        channels: i32,
        proj_stride: i32,
    }
    /// Shared by verify and commit, and in [`GdnPrefillParams`].
    GdnParams (144) {
        tables: Tables,
        q: Address,
        k: Address,
        v: Address,
        g: Address,
        beta: Address,
        u: Address,
        state: Address,
        out: Address,
        key_heads: i32,
        value_heads: i32,
    }
    GdnPrefillParams (176) {
        rows: GdnParams,
        head_chunks: Address,
        key_chunks: Address,
        first_segment: i32,
        first_chunk: i32,
        chunks: i32,
        padding: i32,
    }
    CommitLayer (48) {
        k: Address,
        g: Address,
        u: Address,
        state: Address,
        proj: Address,
        conv_state: Address,
    }
    CommitLayersParams (3160) {
        tables: Tables,
        layers: [CommitLayer; MOST_LAYERS],
        key_heads: i32,
        value_heads: i32,
        segments: i32,
        padding: i32,
    }
    AttentionPrepareParams (168) {
        tables: Tables,
        proj: Address,
        q_norm: Address,
        k_norm: Address,
        inv_freq: Address,
        q: Address,
        keys: Address,
        values: Address,
        rows: i32,
        heads: i32,
        kv_heads: i32,
        rotary_dim: i32,
        gated: i32,
        weight_f32: i32,
        shift: f32,
        eps: f32,
        rope_scale: f32,
        padding: i32,
    }
    AttentionParams (160) {
        tables: Tables,
        q: Address,
        gate: Address,
        keys: Address,
        values: Address,
        out: Address,
        partial: Address,
        partial_max: Address,
        rows: i32,
        heads: i32,
        kv_heads: i32,
        gate_stride: i32,
        splits: i32,
        causal: i32,
        window: i32,
        row_tiles: i32,
    }
    KvCommitParams (96) {
        tables: Tables,
        keys: Address,
        values: Address,
        width: i32,
        padding: i32,
    }
    TopParams (48) {
        logits: Address,
        keys: Address,
        sums: Address,
        out: Address,
        width: i32,
        columns: i32,
        slices: i32,
        first: u32,
    }
    DrawRow (32) {
        seed: u64,
        position: u64,
        temperature: f32,
        top_p: f32,
        min_p: f32,
        top_k: u32,
    }
    DrawParams (88) {
        tops: Address,
        draws: Address,
        out: Address,
        logits: Address,
        open: Address,
        masses: Address,
        counts: Address,
        firsts: Address,
        ranks: i32,
        width: i32,
        columns: i32,
        digit: i32,
        by_mass: i32,
        padding: i32,
    }
    GrowTree (32) {
        first: i32,
        depth: i32,
        budget: i32,
        seeded: i32,
        candidates: i32,
        to: i32,
        scale: f32,
        padding: i32,
    }
    GrowParams (1048) {
        tops: Address,
        out: Address,
        ranks: i32,
        padding: i32,
        trees: [GrowTree; MOST_TREES],
    }
    PlantParams (40) {
        segments: Address,
        drafts: Address,
        row_parent: Address,
        row_position: Address,
        row_ancestors: Address,
    }
    PlaceParams (24) {
        draws: Address,
        row_position: Address,
        rows: i32,
        padding: i32,
    }
    WalkEnd (12) {
        most: i32,
        first_stop: i32,
        stops: i32,
    }
    WalkParams (88) {
        segments: Address,
        row_parent: Address,
        kept_counts: Address,
        kept: Address,
        ends: Address,
        ids: Address,
        stops: Address,
        drafts: Address,
        chosen: Address,
        out: Address,
        ranks: i32,
        padding: i32,
    }
    GatherWalkedParams (104) {
        tables: Tables,
        from: Address,
        out: Address,
        index: Address,
        row_units: i32,
        padding: i32,
    }
    TokenChange (16) {
        token: u32,
        bias: f32,
        scale: f32,
        penalty: f32,
    }
    EditRow (24) {
        first: i32,
        changes: i32,
        masked: i32,
        mask: i32,
        words: i32,
        padding: i32,
    }
    EditParams (56) {
        logits: Address,
        rows: Address,
        changes: Address,
        masks: Address,
        own: Address,
        drawn: Address,
        width: i32,
        padding: i32,
    }
}

/// Structs that tables are made of.
macro_rules! plain {
    ($($name:ident)*) => {$(
        // SAFETY: numbers without padding, any bits of which are valid.
        unsafe impl bytemuck::Zeroable for $name {}
        // SAFETY: as above.
        unsafe impl bytemuck::Pod for $name {}
    )*};
}

plain! { DrawRow EditRow GrowTree TokenChange WalkEnd }

impl From<&Draw> for DrawRow {
    fn from(draw: &Draw) -> Self {
        Self {
            seed: draw.seed,
            position: draw.position,
            temperature: draw.temperature,
            top_p: draw.top_p,
            min_p: draw.min_p,
            top_k: draw.top_k,
        }
    }
}

impl From<&Growth> for GrowTree {
    fn from(tree: &Growth) -> Self {
        Self {
            first: tree.first as i32,
            depth: tree.depth as i32,
            budget: tree.budget as i32,
            seeded: i32::from(tree.seeded),
            candidates: tree.candidates as i32,
            to: tree.to as i32,
            scale: tree.scale(),
            padding: 0,
        }
    }
}

impl From<&Change> for TokenChange {
    fn from(change: &Change) -> Self {
        Self {
            token: change.token,
            bias: change.bias,
            scale: change.scale,
            penalty: change.penalty,
        }
    }
}

impl CommitLayer {
    /// A place that no layer takes.
    pub const NONE: Self = Self {
        k: 0,
        g: 0,
        u: 0,
        state: 0,
        proj: 0,
        conv_state: 0,
    };
}
