use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::lookup::Repeat;

/// Suffix automaton of a growing text: every substring is a path from the root, and strings that
/// end at the same places share a state. At most two states and three edges per token.
#[derive(Clone, Debug)]
pub(crate) struct SuffixAutomaton {
    states: Vec<State>,
    /// Edges of all states but the root, each state's as a list.
    edges: Vec<Edge>,
    /// Edges of the root, which has one for every token of the text.
    root: HashMap<u32, u32, BuildHasherDefault<TokenHasher>>,
    /// State of the whole text.
    last: u32,
    /// Tokens so far.
    len: usize,
    /// Where the longest repeated suffix ended before.
    repeat: Option<Repeat>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// Longest string of the state.
    len: u32,
    /// State of its longest suffix that ends at more places; NONE for the root.
    link: u32,
    /// An index behind an occurrence: the latest that was noted.
    end: u32,
    /// First edge; NONE without one.
    edges: u32,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    token: u32,
    to: u32,
    next: u32,
}

/// Spreads token ids, of which there are too few for anybody to choose many that meet.
#[derive(Clone, Copy, Debug, Default)]
struct TokenHasher(u64);

impl Hasher for TokenHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    fn write_u32(&mut self, value: u32) {
        let mixed = (self.0 ^ u64::from(value)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;
/// States to whom an occurrence is told. Only texts that repeat themselves in as many ways have
/// more, and there an earlier occurrence does as well.
const NOTED: usize = 64;

impl Default for SuffixAutomaton {
    fn default() -> Self {
        Self {
            states: vec![State {
                len: 0,
                link: NONE,
                end: 0,
                edges: NONE,
            }],
            edges: Vec::new(),
            root: HashMap::default(),
            last: ROOT,
            len: 0,
            repeat: None,
        }
    }
}

impl SuffixAutomaton {
    /// Appends a token.
    pub(crate) fn push(&mut self, token: u32) {
        self.len += 1;
        let whole = self.add(State {
            len: self.len as u32,
            link: ROOT,
            end: self.len as u32,
            edges: NONE,
        });
        let mut state = self.last;
        while state != NONE && self.go(state, token).is_none() {
            self.link(state, token, whole);
            state = self.states[state as usize].link;
        }
        if state != NONE {
            let to = self
                .go(state, token)
                .expect("the loop ended at an edge: this is a bug");
            self.states[whole as usize].link = self.split(state, token, to);
        }
        self.last = whole;
        self.note();
    }

    /// Tokens of the text.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Longest suffix of the text that occurs earlier, too.
    pub(crate) fn repeat(&self) -> Option<Repeat> {
        self.repeat
    }

    /// State of exactly the string of `state` and `token`, which leads to `to`.
    fn split(&mut self, mut state: u32, token: u32, to: u32) -> u32 {
        let len = self.states[state as usize].len + 1;
        if self.states[to as usize].len == len {
            return to;
        }
        let mut copy = State {
            len,
            edges: NONE,
            ..self.states[to as usize]
        };
        let mut edge = self.states[to as usize].edges;
        while edge != NONE {
            let Edge { token, to, next } = self.edges[edge as usize];
            copy.edges = self.edge(token, to, copy.edges);
            edge = next;
        }
        let copy = self.add(copy);
        self.states[to as usize].link = copy;
        while state != NONE && self.go(state, token) == Some(to) {
            self.link(state, token, copy);
            state = self.states[state as usize].link;
        }
        copy
    }

    /// Remembers where the repeated suffixes ended before, then that they end here.
    fn note(&mut self) {
        let mut state = self.states[self.last as usize].link;
        let State { len, end, .. } = self.states[state as usize];
        self.repeat = (len > 0).then_some(Repeat {
            len: len as usize,
            next: end as usize,
        });
        for _ in 0..NOTED {
            if state == ROOT {
                break;
            }
            self.states[state as usize].end = self.len as u32;
            state = self.states[state as usize].link;
        }
    }

    fn add(&mut self, state: State) -> u32 {
        self.states.push(state);
        self.states.len() as u32 - 1
    }

    fn edge(&mut self, token: u32, to: u32, next: u32) -> u32 {
        self.edges.push(Edge { token, to, next });
        self.edges.len() as u32 - 1
    }

    fn find(&self, state: u32, token: u32) -> Option<usize> {
        let mut edge = self.states[state as usize].edges;
        while edge != NONE {
            let found = &self.edges[edge as usize];
            if found.token == token {
                return Some(edge as usize);
            }
            edge = found.next;
        }
        None
    }

    fn go(&self, state: u32, token: u32) -> Option<u32> {
        match state {
            ROOT => self.root.get(&token).copied(),
            state => self.find(state, token).map(|edge| self.edges[edge].to),
        }
    }

    /// Sets the edge of `state` by `token`.
    fn link(&mut self, state: u32, token: u32, to: u32) {
        if state == ROOT {
            self.root.insert(token, to);
        } else if let Some(edge) = self.find(state, token) {
            self.edges[edge].to = to;
        } else {
            let first = self.states[state as usize].edges;
            self.states[state as usize].edges = self.edge(token, to, first);
        }
    }
}
