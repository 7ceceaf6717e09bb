//! Trees of drafts grown from rows of candidates.

use bytemuck::Zeroable;
use volley_ops::{CANDIDATES, DRAWN_WIDTH, Growth, Result, TOP_WIDTH};

use crate::buf::Buf;
use crate::dims::{check, check_index};
use crate::driver::Driver;
use crate::error::in_op;
use crate::kernel::GROW;
use crate::params::{GrowParams, GrowTree, MOST_RANKS, MOST_TREES, TREE_ROWS};

/// As [`volley_ops::Ops::grow`] says.
pub fn grow(
    driver: &dyn Driver,
    ranks: usize,
    tops: &Buf,
    trees: &[Growth],
    out: &Buf,
) -> Result<()> {
    let op = "grow";
    check_index(op, "ranks", ranks, MOST_RANKS + 1)?;
    let (mut rows, mut nodes) = (0, 0);
    for tree in trees {
        check_index(op, "depth of a tree", tree.depth, TREE_ROWS)?;
        check_index(op, "nodes of a tree", tree.budget, TREE_ROWS)?;
        check_index(op, "candidates", tree.candidates, CANDIDATES + 1)?;
        let short = usize::from(!tree.fills());
        check(op, "trees with too few prefixes", short, 0)?;
        rows = rows.max(tree.first + tree.depth);
        nodes = nodes.max(tree.to + tree.budget);
    }
    let tops = tops.float(op, "tops", rows, ranks * TOP_WIDTH)?;
    let out = out.float(op, "out", nodes, DRAWN_WIDTH)?;
    for part in trees.chunks(MOST_TREES) {
        let mut params = GrowParams {
            tops,
            out,
            ranks: ranks as i32,
            padding: 0,
            trees: [GrowTree::zeroed(); MOST_TREES],
        };
        for (to, tree) in params.trees.iter_mut().zip(part) {
            *to = GrowTree::from(tree);
        }
        // SAFETY: the buffers have the rows of all trees.
        unsafe { GROW.launch(driver, [part.len(), 1, 1], &params) }.map_err(in_op(op))?;
    }
    Ok(())
}
