/// How a normalisation weight enters: `w` or `1 + w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// `x / rms(x) * w` (drafter, gated norm).
    Plain,
    /// `x / rms(x) * (1 + w)` (target and MTP norms).
    ZeroCentred,
}

/// Shapes of one gated-delta-net layer on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GdnDims {
    /// Key heads; value head `i` uses key head `i / (value_heads / key_heads)`.
    pub key_heads: usize,
    /// Value heads.
    pub value_heads: usize,
    /// Width of a key head.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
    /// Taps of the causal convolution; the state holds `conv_kernel - 1` rows.
    pub conv_kernel: usize,
}

impl GdnDims {
    /// Channels through the convolution: q, k and v of all heads.
    pub fn conv_channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    /// Width of the value side (`z`, output).
    pub fn value_width(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Width of the packed projection `[q | k | v | z | b | a]`.
    pub fn proj_width(&self) -> usize {
        self.conv_channels() + self.value_width() + 2 * self.value_heads
    }

    /// f32 values of one recurrent state, `[value_heads, key_dim, value_dim]`.
    pub fn state_len(&self) -> usize {
        self.value_heads * self.key_dim * self.value_dim
    }

    /// Values of one convolution state, `[conv_kernel - 1, conv_channels]`, oldest row first.
    pub fn conv_state_len(&self) -> usize {
        (self.conv_kernel - 1) * self.conv_channels()
    }
}

/// Shapes of one attention layer on one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionDims {
    /// Query heads; query head `j` uses kv head `j / (heads / kv_heads)`.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a head; scores are scaled by `head_dim^-0.5`.
    pub head_dim: usize,
    /// Leading dimensions of a head that are rotated (NeoX halves).
    pub rotary_dim: usize,
    /// Whether each query head carries an output gate behind it: `[query | gate]` per head.
    pub gated: bool,
    /// Norm of the query and key heads.
    pub norm: NormKind,
    /// Epsilon of these norms.
    pub eps: f32,
}

impl AttentionDims {
    /// Width of the packed projection `[q (+ gate per head) | k | v]`.
    pub fn proj_width(&self) -> usize {
        self.query_width() * if self.gated { 2 } else { 1 } + 2 * self.kv_width()
    }

    /// Width of all query heads.
    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key (or value) heads.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// The cache this layer writes.
    pub fn kv(&self) -> KvDims {
        KvDims {
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
        }
    }
}

/// Shape of one layer's paged key/value cache: `[blocks, block_size, kv_heads, head_dim]` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvDims {
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

/// Which keys a query row sees, beyond those of its own sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionMask {
    /// Among the rows of the pass: only ancestors and self (true), or all rows of the segment.
    pub causal: bool,
    /// Keys from position `q - window + 1` on only: the window counts the query itself and does
    /// not bound the keys behind it that a bidirectional mask shows.
    pub window: Option<usize>,
}

impl AttentionMask {
    /// Plain causal attention.
    pub const CAUSAL: Self = Self {
        causal: true,
        window: None,
    };
}
