//! Decoder layers, shared by target, MTP head and drafter.

mod attention;
mod gdn;
mod mlp;
mod stream;

pub(crate) use attention::{Attention, AttentionPlan, AttentionScratch};
pub(crate) use gdn::{Gdn, GdnScratch};
pub(crate) use mlp::{Mlp, MlpScratch};
pub(crate) use stream::Stream;

use volley_ops::{Batch, Ops, RopeTable};

use crate::Result;

/// How a pass treats the recurrent states.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All rows are part of the text: states advance.
    Prefill,
    /// Rows are proposals: states stay until the commit.
    Verify,
}

/// What all layers of a pass share.
pub(crate) struct Pass<'a, O: Ops> {
    pub(crate) ops: &'a O,
    pub(crate) batch: &'a Batch,
    pub(crate) rows: usize,
    pub(crate) mode: Mode,
    pub(crate) rope: &'a RopeTable<O::Buf>,
}

/// Mixer of a layer.
pub(crate) enum Mixer<O: Ops> {
    Gdn(Box<Gdn<O>>),
    Attention(Box<Attention<O>>),
}

/// A decoder layer: `x + mixer(norm(x))`, then `x + mlp(norm(x))`.
pub(crate) struct Layer<O: Ops> {
    pub(crate) input_norm: O::Buf,
    pub(crate) mixer: Mixer<O>,
    pub(crate) post_norm: O::Buf,
    pub(crate) mlp: Mlp<O>,
}

/// Intermediate buffers, used by one layer after the other.
pub(crate) struct Scratch<O: Ops> {
    pub(crate) gdn: Option<GdnScratch<O>>,
    pub(crate) attention: AttentionScratch<O>,
    pub(crate) mlp: MlpScratch<O>,
}

impl<O: Ops> Layer<O> {
    /// From the normed input in `stream` to this rank's part of the MLP's output, which the next
    /// norm adds to the residual.
    pub(crate) fn forward(
        &mut self,
        pass: &Pass<O>,
        stream: &mut Stream<O>,
        scratch: &mut Scratch<O>,
    ) -> Result<()> {
        let (input, output) = stream.ends();
        match &mut self.mixer {
            Mixer::Gdn(gdn) => {
                let scratch = scratch.gdn.as_mut();
                let scratch =
                    scratch.expect("a model with GDN layers has their buffers: this is a bug");
                gdn.forward(pass, input, scratch, output)?;
            }
            Mixer::Attention(attention) => {
                attention.forward(pass, input, &mut scratch.attention, output)?;
            }
        }
        stream.norm(pass.ops, pass.rows, &self.post_norm)?;
        let (input, output) = stream.ends();
        self.mlp.forward(pass, input, &mut scratch.mlp, output)
    }
}
