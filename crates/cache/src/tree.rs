//! Prefixes as a tree of blocks.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::Prefix;

/// Index of a node.
type NodeId = usize;

/// Texts by their blocks: a child continues its parent by at most one block of tokens, and only
/// full blocks have children. Every leaf is a checkpoint. Each salt has a tree of its own.
///
/// Tokens are compared one by one, so nothing depends on hashes; a node has few children, one for
/// each way in which texts go on.
#[derive(Debug)]
pub(crate) struct PrefixTree {
    block_size: usize,
    /// By salt; a root has children.
    roots: BTreeMap<Box<str>, NodeId>,
    nodes: Vec<Option<Node>>,
    unused: Vec<NodeId>,
    /// Checkpoints by their last use, oldest first.
    by_use: BTreeMap<u64, NodeId>,
    clock: u64,
}

#[derive(Debug)]
struct Node {
    above: Above,
    tokens: Box<[u32]>,
    /// None of a root.
    block: Option<u32>,
    children: Vec<NodeId>,
    checkpoint: Option<Checkpoint>,
}

/// What a node hangs from.
#[derive(Clone, Debug)]
enum Above {
    Parent(NodeId),
    /// It is the root of a salt.
    Salt(Box<str>),
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
    /// Whether a kept text goes on behind these.
    pub goes_on: bool,
    /// Whether anything is kept under the salt.
    pub known: bool,
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
        Self {
            block_size,
            roots: BTreeMap::new(),
            nodes: Vec::new(),
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
    pub fn find(&self, text: Prefix<'_>, limit: usize) -> Found {
        let Some(&root) = self.roots.get(text.salt) else {
            return Found::default();
        };
        let mut found = Found {
            known: true,
            ..Found::default()
        };
        let (mut at, mut here, mut best) = (0, root, None);
        loop {
            let mut next = None;
            for &child in &self.node(here).children {
                let node = self.node(child);
                let rest = text.tokens[at..].iter();
                let same = rest.zip(&node.tokens).take_while(|(a, b)| a == b).count();
                let common = at + same;
                let goes_on = same < node.tokens.len() || !node.children.is_empty();
                found.goes_on = match common.cmp(&found.common) {
                    Ordering::Less => found.goes_on,
                    Ordering::Equal => found.goes_on || goes_on,
                    Ordering::Greater => goes_on,
                };
                found.common = found.common.max(common);
                if same < node.tokens.len() {
                    continue;
                }
                let longer = best.is_none_or(|(_, tokens)| common > tokens);
                if node.checkpoint.is_some() && common <= limit && longer {
                    best = Some((child, common));
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
        found.hit = best.map(|(node, tokens)| self.hit(node, tokens));
        found
    }

    /// The node above, if it is not a salt's root.
    fn parent(&self, id: NodeId) -> Option<NodeId> {
        match self.node(id).above {
            Above::Parent(parent) => Some(parent),
            Above::Salt(_) => None,
        }
    }

    fn hit(&self, id: NodeId, tokens: usize) -> Hit {
        let path = std::iter::successors(Some(id), |&id| self.parent(id));
        let mut blocks: Vec<u32> = path.filter_map(|id| self.node(id).block).collect();
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
    pub fn holds(&self, text: Prefix<'_>) -> bool {
        let end = self.find(text, text.tokens.len()).hit;
        end.is_some_and(|hit| hit.tokens == text.tokens.len())
    }

    /// Makes the end of `text` a checkpoint, used last. Returns the blocks of `blocks` that the
    /// tree now holds one time more, or the slot back if the checkpoint is there already.
    pub fn insert(
        &mut self,
        text: Prefix<'_>,
        blocks: &[u32],
        slot: usize,
    ) -> Result<Vec<u32>, usize> {
        let mut here = match self.roots.get(text.salt) {
            Some(&root) => root,
            None => {
                let root = self.add(Above::Salt(text.salt.into()), &[], None);
                self.roots.insert(text.salt.into(), root);
                root
            }
        };
        let mut taken = Vec::new();
        for (tokens, &block) in text.tokens.chunks(self.block_size).zip(blocks) {
            let mut children = self.node(here).children.iter().copied();
            here = match children.find(|&child| &*self.node(child).tokens == tokens) {
                Some(child) => child,
                None => {
                    taken.push(block);
                    let child = self.add(Above::Parent(here), tokens, Some(block));
                    self.node_mut(here).children.push(child);
                    child
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

    fn add(&mut self, above: Above, tokens: &[u32], block: Option<u32>) -> NodeId {
        let node = Some(Node {
            above,
            tokens: tokens.into(),
            block,
            children: Vec::new(),
            checkpoint: None,
        });
        match self.unused.pop() {
            Some(id) => {
                self.nodes[id] = node;
                id
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        }
    }

    /// Gives up the checkpoint used longest ago of those that `wanted` says yes to, by whether the
    /// checkpoint is a leaf and the block that it ends in.
    pub fn remove_oldest(&mut self, wanted: impl Fn(bool, u32) -> bool) -> Option<Removed> {
        let of_interest = |(_, id): &(&u64, &NodeId)| {
            let node = self.node(**id);
            let leaf = node.children.is_empty();
            node.block.is_some_and(|block| wanted(leaf, block))
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
        while self.node(here).children.is_empty()
            && self.node(here).checkpoint.is_none()
            && let Some(node) = self.nodes[here].take()
        {
            self.unused.push(here);
            removed.blocks.extend(node.block);
            match node.above {
                Above::Salt(salt) => {
                    self.roots.remove(&salt);
                    break;
                }
                Above::Parent(parent) => {
                    let siblings = &mut self.node_mut(parent).children;
                    siblings.retain(|&child| child != here);
                    here = parent;
                }
            }
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
        self.nodes.iter().flatten().filter_map(|node| node.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(tree: &PrefixTree, text: &[u32]) -> (Option<usize>, usize) {
        let found = tree.find(Prefix::of(text), text.len());
        (found.hit.map(|hit| hit.tokens), found.common)
    }

    /// Whether a kept text goes on where `text` parts from all.
    fn goes_on(tree: &PrefixTree, text: &[u32]) -> bool {
        tree.find(Prefix::of(text), text.len()).goes_on
    }

    #[test]
    fn branches_share_their_beginning() {
        let mut tree = PrefixTree::new(2);
        assert_eq!(
            tree.insert(Prefix::of(&[1, 2, 3]), &[10, 11], 0),
            Ok(vec![10, 11])
        );
        assert_eq!(
            tree.insert(Prefix::of(&[1, 2, 5, 6]), &[10, 12], 1),
            Ok(vec![12])
        );
        assert_eq!(tree.insert(Prefix::of(&[1, 2]), &[10], 2), Ok(vec![]));
        assert_eq!(tree.insert(Prefix::of(&[1, 2]), &[13], 3), Err(3));
        assert_eq!(found(&tree, &[1, 2, 3, 9]), (Some(3), 3));
        assert_eq!(found(&tree, &[1, 2, 5, 7]), (Some(2), 3));
        assert_eq!(found(&tree, &[1, 4]), (None, 1));
        let hit = tree.find(Prefix::of(&[1, 2, 5, 6, 7]), 4).hit.unwrap();
        assert_eq!((hit.slot, &*hit.blocks), (1, &[10, 12][..]));
        assert_eq!(
            tree.find(Prefix::of(&[1, 2, 5, 6]), 3).hit.unwrap().tokens,
            2
        );
        assert!(tree.holds(Prefix::of(&[1, 2, 3])) && !tree.holds(Prefix::of(&[1])));
    }

    #[test]
    fn what_leads_to_no_checkpoint_is_dropped() {
        let mut tree = PrefixTree::new(2);
        tree.insert(Prefix::of(&[1, 2, 3, 4, 5]), &[10, 11, 12], 0)
            .unwrap();
        tree.insert(Prefix::of(&[1, 2]), &[10], 1).unwrap();
        let hit = tree.find(Prefix::of(&[1, 2, 3, 4, 5]), 5).hit.unwrap();
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

    #[test]
    fn where_texts_part_is_known_with_what_is_there() {
        let mut tree = PrefixTree::new(2);
        assert!(!tree.find(Prefix::of(&[1]), 1).known);
        tree.insert(Prefix::of(&[1, 2, 3]), &[10, 11], 0).unwrap();
        assert!(tree.find(Prefix::of(&[9]), 1).known);
        assert_eq!(found(&tree, &[1, 2, 3, 4]), (Some(3), 3));
        assert!(!goes_on(&tree, &[1, 2, 3, 4]));
        assert!(goes_on(&tree, &[1, 2, 4]) && goes_on(&tree, &[1, 2]) && goes_on(&tree, &[9]));
        tree.insert(Prefix::of(&[1, 2, 3, 5]), &[10, 12], 1)
            .unwrap();
        assert!(goes_on(&tree, &[1, 2, 3, 4]));
        assert!(!goes_on(&tree, &[1, 2, 3, 5, 6]));
    }

    #[test]
    fn salts_share_nothing() {
        let mut tree = PrefixTree::new(2);
        let of = |salt, tokens| Prefix { salt, tokens };
        let text = &[1, 2, 3][..];
        tree.insert(of("a", text), &[10, 11], 0).unwrap();
        assert!(tree.holds(of("a", text)));
        for salt in ["", "b", "aa"] {
            assert_eq!(tree.find(of(salt, text), 3), Found::default());
        }
        assert_eq!(tree.insert(of("b", text), &[20, 21], 1), Ok(vec![20, 21]));
        assert_eq!(tree.find(of("b", text), 3).hit.unwrap().blocks, [20, 21]);
        assert_eq!(tree.remove_oldest(|_, _| true).unwrap().blocks, [11, 10]);
        assert_eq!(tree.roots.len(), 1);
        tree.remove_oldest(|_, _| true).unwrap();
        assert!(tree.roots.is_empty() && tree.nodes.iter().all(Option::is_none));
    }
}
