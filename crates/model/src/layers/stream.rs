use volley_ops::{Dtype, NormKind, Ops};

use crate::Result;

/// The residual stream, its normed copy (input of the next step) and this rank's part of what that
/// step adds.
pub(crate) struct Stream<O: Ops> {
    pub(crate) residual: O::Buf,
    pub(crate) width: usize,
    normed: O::Buf,
    delta: O::Buf,
    /// Whether `delta` waits to be added.
    pending: bool,
    kind: NormKind,
    eps: f32,
}

impl<O: Ops> Stream<O> {
    pub(crate) fn new(
        ops: &O,
        rows: usize,
        hidden: usize,
        kind: NormKind,
        eps: f32,
    ) -> Result<Self> {
        let alloc = || ops.alloc(rows, hidden, Dtype::Activation);
        Ok(Self {
            residual: alloc()?,
            width: hidden,
            normed: alloc()?,
            delta: alloc()?,
            pending: false,
            kind,
            eps,
        })
    }

    /// Where a pass writes its first residual; drops what is left of the last pass.
    pub(crate) fn restart(&mut self) -> &mut O::Buf {
        self.pending = false;
        &mut self.residual
    }

    /// Adds the ranks' sum of what is pending and norms the residual.
    pub(crate) fn norm(&mut self, ops: &O, rows: usize, w: &O::Buf) -> Result<()> {
        let Self {
            residual,
            normed,
            delta,
            ..
        } = self;
        if std::mem::take(&mut self.pending) {
            ops.reduce_add_rms_norm(delta, rows, residual, w, self.kind, self.eps, normed)?;
        } else {
            ops.rms_norm(residual, rows, w, self.kind, self.eps, normed)?;
        }
        Ok(())
    }

    /// Input and output of a step; the output is added by the next [`Stream::norm`].
    pub(crate) fn ends(&mut self) -> (&O::Buf, &mut O::Buf) {
        self.pending = true;
        (&self.normed, &mut self.delta)
    }

    /// The residual after the last norm.
    pub(crate) fn normed(&self) -> &O::Buf {
        &self.normed
    }
}
