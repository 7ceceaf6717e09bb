use crate::Result;
use crate::check::error;

/// How much a model holds; buffers and caches are allocated once, at load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows of a pass.
    pub max_rows: usize,
    /// Rows of a [`crate::Target::verify`]; each costs memory in every GDN layer.
    pub verify_rows: usize,
    /// Sequences whose recurrent states are held.
    pub slots: usize,
    /// Cache blocks, each of [`volley_ops::Ops::block_size`] tokens.
    pub blocks: usize,
}

impl Limits {
    pub(crate) fn check(&self, call: &'static str) -> Result<()> {
        let positive = |what, n: usize| match n {
            0 => Err(error(call, what, "at least 1", n)),
            _ => Ok(()),
        };
        positive("limits.max_rows", self.max_rows)?;
        positive("limits.verify_rows", self.verify_rows)?;
        positive("limits.slots", self.slots)?;
        positive("limits.blocks", self.blocks)?;
        if self.verify_rows > self.max_rows {
            let expected = format!("at most max_rows = {}", self.max_rows);
            return Err(error(
                call,
                "limits.verify_rows",
                expected,
                self.verify_rows,
            ));
        }
        Ok(())
    }
}
