//! Prefixes as a tree of blocks.

use std::collections::BTreeMap;

/// Index of a node.
type NodeId = usize;

const ROOT: NodeId = 0;

/// Texts by their blocks: a child continues its parent by at most one block of tokens, and only
/// full blocks have children. Every leaf is a checkpoint.
///
/// Tokens are compared one by one, so nothing depends on hashes; a node has few children, one for
/// each way in which texts go on.
#[derive(Debug)]
pub(crate) struct PrefixTree {
    block_size: usize,
    nodes: Vec<Option<Node>>,
    unused: Vec<NodeId>,
    /// Checkpoints by their last use, oldest first.
    by_use: BTreeMap<u64, NodeId>,
    clock: u64,
}

#[derive(Debug)]
struct Node {
    parent: NodeId,
    tokens: Box<[u32]>,
    block: u32,
    children: Vec<NodeId>,
    checkpoint: Option<Checkpoint>,
}

#[derive(Clone, Copy, Debug)]
struct Checkpoint {
    slot: usize,
    used: u64,
}

/// What the tree knows of the beginning of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The deepest checkpoint on the way.
    pub hit: Option<Hit>,
    /// Tokens that some kept text shares, with or without a checkpoint there.
    pub common: usize,
}

/// A checkpoint found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    node: NodeId,
    /// Tokens before it.
    pub tokens: usize,
    /// Slot of its states.
    pub slot: usize,
    /// Blocks of the tokens.
    pub blocks: Vec<u32>,
}

/// What a checkpoint leaves behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    /// Slot of its states.
    pub slot: usize,
    /// Blocks that the tree no longer holds.
    pub blocks: Vec<u32>,
}

impl PrefixTree {
    pub fn new(block_size: usize) -> Self {
        let root = Node {
            parent: ROOT,
            tokens: Box::default(),
            block: 0,
            children: Vec::new(),
            checkpoint: None,
        };
        Self {
            block_size,
            nodes: vec![Some(root)],
            unused: Vec::new(),
            by_use: BTreeMap::new(),
            clock: 0,
        }
    }

    fn node(&self, id: NodeId) -> &Node {
        self.nodes[id]
            .as_ref()
            .expect("linked nodes exist: this is a bug")
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id]
            .as_mut()
            .expect("linked nodes exist: this is a bug")
    }

    /// Follows `text`; only checkpoints within its first `limit` tokens count.
    pub fn find(&self, text: &[u32], limit: usize) -> Found {
        let (mut at, mut here) = (0, ROOT);
        let (mut best, mut common) = (None, 0);
        loop {
            let mut next = None;
            for &child in &self.node(here).children {
                let node = self.node(child);
                let rest = text[at..].iter();
                let same = rest.zip(&node.tokens).take_while(|(a, b)| a == b).count();
                common = common.max(at + same);
                if same < node.tokens.len() {
                    continue;
                }
                let longer = best.is_none_or(|(_, tokens)| at + same > tokens);
                if node.checkpoint.is_some() && at + same <= limit && longer {
                    best = Some((child, at + same));
                }
                if same == self.block_size {
                    next = Some(child);
                }
            }
            match next {
                Some(child) => here = child,
                None => break,
            }
            at += self.block_size;
        }
        let hit = best.map(|(node, tokens)| self.hit(node, tokens));
        Found { hit, common }
    }

    fn hit(&self, id: NodeId, tokens: usize) -> Hit {
        let path = std::iter::successors(Some(id), |&id| Some(self.node(id).parent));
        let path = path.take_while(|&id| id != ROOT);
        let mut blocks: Vec<u32> = path.map(|id| self.node(id).block).collect();
        blocks.reverse();
        let checkpoint = self.node(id).checkpoint;
        Hit {
            node: id,
            tokens,
            slot: checkpoint
                .expect("a hit is a checkpoint: this is a bug")
                .slot,
            blocks,
        }
    }

    /// Makes a checkpoint the one used last.
    pub fn touch(&mut self, hit: &Hit) {
        self.use_now(hit.node);
    }

    fn use_now(&mut self, id: NodeId) {
        self.clock += 1;
        let now = self.clock;
        if let Some(checkpoint) = &mut self.node_mut(id).checkpoint {
            let before = std::mem::replace(&mut checkpoint.used, now);
            self.by_use.remove(&before);
            self.by_use.insert(now, id);
        }
    }

    /// Whether the end of `text` is a checkpoint.
    pub fn holds(&self, text: &[u32]) -> bool {
        let end = self.find(text, text.len()).hit;
        end.is_some_and(|hit| hit.tokens == text.len())
    }

    /// Makes the end of `text` a checkpoint, used last. Returns the blocks of `blocks` that the
    /// tree now holds one time more, or the slot back if the checkpoint is there already.
    pub fn insert(&mut self, text: &[u32], blocks: &[u32], slot: usize) -> Result<Vec<u32>, usize> {
        let mut here = ROOT;
        let mut taken = Vec::new();
        for (tokens, &block) in text.chunks(self.block_size).zip(blocks) {
            let mut children = self.node(here).children.iter().copied();
            here = match children.find(|&child| &*self.node(child).tokens == tokens) {
                Some(child) => child,
                None => {
                    taken.push(block);
                    self.add(here, tokens, block)
                }
            };
        }
        let checkpoint = &mut self.node_mut(here).checkpoint;
        let left_over = match checkpoint {
            Some(_) => Err(slot),
            None => {
                *checkpoint = Some(Checkpoint { slot, used: 0 });
                Ok(taken)
            }
        };
        self.use_now(here);
        left_over
    }

    fn add(&mut self, parent: NodeId, tokens: &[u32], block: u32) -> NodeId {
        let node = Some(Node {
            parent,
            tokens: tokens.into(),
            block,
            children: Vec::new(),
            checkpoint: None,
        });
        let id = match self.unused.pop() {
            Some(id) => {
                self.nodes[id] = node;
                id
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        self.node_mut(parent).children.push(id);
        id
    }

    /// Gives up the checkpoint used longest ago of those that `wanted` says yes to, by whether the
    /// checkpoint is a leaf and the block that it ends in.
    pub fn remove_oldest(&mut self, wanted: impl Fn(bool, u32) -> bool) -> Option<Removed> {
        let of_interest = |(_, id): &(&u64, &NodeId)| {
            let node = self.node(**id);
            wanted(node.children.is_empty(), node.block)
        };
        let id = *self.by_use.iter().find(of_interest)?.1;
        Some(self.remove(id))
    }

    fn remove(&mut self, id: NodeId) -> Removed {
        let checkpoint = self.node_mut(id).checkpoint.take();
        let checkpoint = checkpoint.expect("what is removed is a checkpoint: this is a bug");
        self.by_use.remove(&checkpoint.used);
        let mut removed = Removed {
            slot: checkpoint.slot,
            blocks: Vec::new(),
        };
        let mut here = id;
        while here != ROOT
            && self.node(here).children.is_empty()
            && self.node(here).checkpoint.is_none()
            && let Some(node) = self.nodes[here].take()
        {
            self.unused.push(here);
            removed.blocks.push(node.block);
            self.node_mut(node.parent)
                .children
                .retain(|&child| child != here);
            here = node.parent;
        }
        removed
    }

    /// Number of checkpoints.
    pub fn len(&self) -> usize {
        self.by_use.len()
    }

    /// Slots of all checkpoints.
    pub fn slots(&self) -> impl Iterator<Item = usize> {
        self.by_use
            .values()
            .filter_map(|&id| Some(self.node(id).checkpoint?.slot))
    }

    /// The block of every node.
    pub fn blocks(&self) -> impl Iterator<Item = u32> {
        let nodes = self.nodes.iter().skip(1).flatten();
        nodes.map(|node| node.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(tree: &PrefixTree, text: &[u32]) -> (Option<usize>, usize) {
        let found = tree.find(text, text.len());
        (found.hit.map(|hit| hit.tokens), found.common)
    }

    #[test]
    fn branches_share_their_beginning() {
        let mut tree = PrefixTree::new(2);
        assert_eq!(tree.insert(&[1, 2, 3], &[10, 11], 0), Ok(vec![10, 11]));
        assert_eq!(tree.insert(&[1, 2, 5, 6], &[10, 12], 1), Ok(vec![12]));
        assert_eq!(tree.insert(&[1, 2], &[10], 2), Ok(vec![]));
        assert_eq!(tree.insert(&[1, 2], &[13], 3), Err(3));
        assert_eq!(found(&tree, &[1, 2, 3, 9]), (Some(3), 3));
        assert_eq!(found(&tree, &[1, 2, 5, 7]), (Some(2), 3));
        assert_eq!(found(&tree, &[1, 4]), (None, 1));
        let hit = tree.find(&[1, 2, 5, 6, 7], 4).hit.unwrap();
        assert_eq!((hit.slot, &*hit.blocks), (1, &[10, 12][..]));
        assert_eq!(tree.find(&[1, 2, 5, 6], 3).hit.unwrap().tokens, 2);
        assert!(tree.holds(&[1, 2, 3]) && !tree.holds(&[1]));
    }

    #[test]
    fn what_leads_to_no_checkpoint_is_dropped() {
        let mut tree = PrefixTree::new(2);
        tree.insert(&[1, 2, 3, 4, 5], &[10, 11, 12], 0).unwrap();
        tree.insert(&[1, 2], &[10], 1).unwrap();
        let hit = tree.find(&[1, 2, 3, 4, 5], 5).hit.unwrap();
        tree.touch(&hit);
        let oldest = tree.remove_oldest(|_, _| true).unwrap();
        assert_eq!((oldest.slot, oldest.blocks), (1, vec![]));
        let last = tree
            .remove_oldest(|leaf, block| leaf && block == 12)
            .unwrap();
        assert_eq!((last.slot, last.blocks), (0, vec![12, 11, 10]));
        assert_eq!((tree.len(), tree.blocks().count()), (0, 0));
        assert_eq!(found(&tree, &[1, 2]), (None, 0));
    }
}
