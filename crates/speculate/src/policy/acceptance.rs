/// How drafts did lately, by where they came from.
#[derive(Clone, Debug, Default)]
pub struct Acceptance {
    chain: Positions,
    mtp: Positions,
    trees: Rate,
    /// By class of the repeat. Behind drafts that were right it is longer by these, so each draft
    /// has its class.
    repeats: [Rate; REPEATS.len()],
    /// Of one sequence: how its drafts do beside those of all.
    luck: [Luck; 3],
    scope: Scope,
}

/// Whose drafts are counted, which says how soon they are forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// One sequence, which may come to a passage of another kind.
    #[default]
    Sequence,
    /// All that an engine ran.
    Engine,
}

impl Scope {
    /// What an observation still counts for after the next one.
    fn keep(self) -> f64 {
        match self {
            Self::Sequence => 0.95,
            Self::Engine => 0.995,
        }
    }
}

/// What a policy learns from a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome<'a> {
    /// Drafts on the longest path.
    pub depth: usize,
    /// Drafts accepted.
    pub accepted: usize,
    /// Of these, on the path of first children: what a chain would have had.
    pub spine: usize,
    /// Tokens that came out.
    pub tokens: &'a [u32],
    /// Whether the sequence ended in the step: drafts behind its end were neither right nor wrong.
    pub ended: bool,
}

impl Outcome<'_> {
    /// Of `drafted` drafts in a row, `right` of them right, those that were judged and those that
    /// were right.
    fn judged(&self, drafted: usize, right: usize) -> [usize; 2] {
        match self.ended {
            true => [right.min(self.tokens.len()); 2],
            false => [drafted.min(right + 1), right],
        }
    }
}

/// A repeat, as far as it is believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Repeated {
    /// Its tokens; 0 without one.
    pub len: usize,
    /// Whether it goes back to the question.
    pub again: bool,
}

/// Least lengths of classes of repeats, and how often the next token is right before anything is
/// known. The last class is that of answers that were given before, whatever their length: what they
/// teach does not hold for phrases that occur again.
const REPEATS: [(usize, f64); 9] = [
    (1, 0.2),
    (2, 0.4),
    (3, 0.55),
    (5, 0.7),
    (9, 0.85),
    (17, 0.93),
    (33, 0.94),
    (65, 0.95),
    (usize::MAX, 0.97),
];
const AGAIN: usize = REPEATS.len() - 1;

/// Tokens of the shortest repeat of a class.
fn least_of(class: usize) -> usize {
    REPEATS.get(class).map_or(usize::MAX, |&(least, _)| least)
}
/// Acceptance of a draft behind accepted ones before anything is known: high, as drafts that are
/// never tried are never known, and poor ones are found out within a few steps.
const DRAFT: f64 = 0.95;
/// Tokens that a tree of endless size gains where its chain misses, before one was tried.
const TREE: f64 = 2.5;
/// Nodes beyond the chain that bring half of that; as many more bring half of the rest.
const HALF: f64 = 6.0;
/// Observations that what is known before counts for.
const TRUST: f64 = 3.0;
/// The same for one position of one sequence, where the sequence's luck says most already.
const TRUST_ALL: f64 = 8.0;
/// Misses that what is known of all sequences counts for.
const TRUST_LUCK: f64 = 2.0;

/// A mean that forgets: the last observations count most.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    sum: f64,
    count: f64,
}

impl Rate {
    fn add(&mut self, scope: Scope, sum: f64, count: f64) {
        let keep = scope.keep();
        self.sum = self.sum * keep + sum;
        self.count = self.count * keep + count;
    }

    /// The mean, drawn to `prior` as if that had been seen `trust` times.
    fn mean(&self, prior: f64, trust: f64) -> f64 {
        (self.sum + trust * prior) / (self.count + trust)
    }
}

/// Misses of a sequence beside those that were to be expected: what little is seen of one text
/// tells more in one number than in one for each position.
#[derive(Clone, Copy, Debug, Default)]
struct Luck {
    misses: f64,
    expected: f64,
}

impl Luck {
    fn add(&mut self, scope: Scope, missed: bool, expected: f64) {
        let keep = scope.keep();
        self.misses = self.misses * keep + f64::from(missed);
        self.expected = self.expected * keep + expected;
    }

    /// The acceptance of a draft that all sequences accept so often.
    fn bend(&self, rate: f64) -> f64 {
        let factor = (self.misses + TRUST_LUCK) / (self.expected + TRUST_LUCK);
        (1.0 - (1.0 - rate) * factor).max(0.0)
    }
}

/// For each position of a chain: how often its draft is accepted when those before it are.
#[derive(Clone, Debug, Default)]
struct Positions {
    rates: Vec<Rate>,
}

impl Positions {
    /// Of a chain's drafts the first `judged` were looked at and the first `right` right.
    fn take(&mut self, scope: Scope, [judged, right]: [usize; 2]) {
        if self.rates.len() < judged {
            self.rates.resize(judged, Rate::default());
        }
        for (index, rate) in self.rates[..judged].iter_mut().enumerate() {
            rate.add(scope, f64::from(index < right), 1.0);
        }
    }

    fn rate(&self, index: usize, prior: f64, trust: f64) -> f64 {
        match self.rates.get(index) {
            Some(rate) => rate.mean(prior, trust),
            None => prior,
        }
    }

    /// Misses to be expected among the first `judged` drafts, each behind right ones.
    fn misses(&self, judged: usize, prior: f64) -> f64 {
        let miss = |index| 1.0 - self.rate(index, prior, TRUST);
        (0..judged).map(miss).sum()
    }

    /// For each of `drafts` positions how likely it is reached and accepted in a sequence of such
    /// luck, where `all` is what is known of all sequences.
    fn reach(
        &self,
        all: &Self,
        luck: Luck,
        drafts: usize,
        prior: f64,
    ) -> impl Iterator<Item = f64> {
        (0..drafts).scan(1.0, move |reach, index| {
            let prior = luck.bend(all.rate(index, prior, TRUST));
            *reach *= self.rate(index, prior, TRUST_ALL);
            Some(*reach)
        })
    }
}

const CHAIN: usize = 0;
const MTP: usize = 1;
const REPEAT: usize = 2;

impl Acceptance {
    /// Nothing known yet.
    pub fn new(scope: Scope) -> Self {
        Self {
            scope,
            ..Self::default()
        }
    }

    /// How a sequence's drafts do beside those of all, of which so many misses were to be `expected`;
    /// to be told before what it takes in itself.
    fn compare(&mut self, which: usize, expected: f64, [judged, right]: [usize; 2]) {
        self.luck[which].add(self.scope, right < judged, expected);
    }

    /// A chain of a model's block; `all` for a sequence.
    pub(super) fn take_chain(&mut self, all: Option<&Self>, outcome: &Outcome<'_>) {
        let judged = outcome.judged(outcome.depth, outcome.spine);
        if let Some(all) = all {
            self.compare(CHAIN, all.chain.misses(judged[0], DRAFT), judged);
        }
        self.chain.take(self.scope, judged);
    }

    pub(super) fn take_mtp(&mut self, all: Option<&Self>, outcome: &Outcome<'_>) {
        let judged = outcome.judged(outcome.depth, outcome.accepted);
        if let Some(all) = all {
            self.compare(MTP, all.mtp.misses(judged[0], DRAFT), judged);
        }
        self.mtp.take(self.scope, judged);
    }

    /// A tree teaches what a chain would have done, and where that misses, what its other nodes
    /// are for.
    pub(super) fn take_tree(&mut self, all: Option<&Self>, budget: usize, outcome: &Outcome<'_>) {
        self.take_chain(all, outcome);
        let Outcome { depth, spine, .. } = *outcome;
        if spine < depth && !outcome.ended {
            let gain = outcome.accepted.saturating_sub(spine) as f64;
            self.trees.add(self.scope, gain, spread(budget, depth));
        }
    }

    /// Compares what a lookup drafted, or would have, with what came out.
    pub(super) fn take_repeat(
        &mut self,
        all: Option<&Self>,
        repeated: Repeated,
        drafts: &[u32],
        tokens: &[u32],
    ) {
        if repeated.len == 0 {
            return;
        }
        let pairs = drafts.iter().zip(tokens);
        let most = pairs.len();
        let right = pairs.take_while(|(draft, token)| draft == token).count();
        let judged = most.min(right + 1);
        if let Some(all) = all {
            let miss = |draft| 1.0 - all.behind(repeated.class(draft));
            let expected = (0..judged).map(miss).sum();
            self.compare(REPEAT, expected, [judged, right]);
        }
        // Drafts of a class count as one observation when it comes to forgetting.
        let mut draft = 0;
        while draft < judged {
            let class = repeated.class(draft);
            let end = (least_of(class + 1) - repeated.len).min(judged);
            let count = (end - draft) as f64;
            let missed = f64::from(end > right);
            self.repeats[class].add(self.scope, count - missed, count);
            draft = end;
        }
    }

    /// How often a token behind a repeat of a class is right in all sequences.
    fn behind(&self, class: usize) -> f64 {
        self.repeats[class].mean(REPEATS[class].1, TRUST)
    }

    /// For each draft of a chain of the block how likely it is accepted.
    pub(super) fn chain(&self, all: &Self, drafts: usize) -> impl Iterator<Item = f64> {
        self.chain
            .reach(&all.chain, self.luck[CHAIN], drafts, DRAFT)
    }

    /// The same for one of the MTP head.
    pub(super) fn mtp(&self, all: &Self, drafts: usize) -> impl Iterator<Item = f64> {
        self.mtp.reach(&all.mtp, self.luck[MTP], drafts, DRAFT)
    }

    /// Tokens that a tree gains where its chain, of `depth` drafts, misses.
    pub(super) fn tree_gain(&self, all: &Self, budget: usize, depth: usize) -> f64 {
        let gain = self.trees.mean(all.trees.mean(TREE, TRUST), TRUST_ALL);
        gain * spread(budget, depth)
    }

    /// How sure lookups of a sequence are.
    pub(super) fn surety(&self, all: &Self) -> Surety {
        let luck = self.luck[REPEAT];
        Surety(std::array::from_fn(|class| {
            let prior = luck.bend(all.behind(class));
            self.repeats[class].mean(prior, TRUST_ALL)
        }))
    }
}

/// How often a token behind a repeat is right, by its class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surety([f64; REPEATS.len()]);

impl Surety {
    /// For each draft of a lookup behind a repeat how likely it is accepted.
    pub fn reach(&self, repeated: Repeated, drafts: usize) -> impl Iterator<Item = f64> {
        let mut class = repeated.class(0);
        (0..drafts).scan(1.0, move |reach, draft| {
            if repeated.len + draft >= least_of(class + 1) {
                class = repeated.class(draft);
            }
            *reach *= self.0[class];
            Some(*reach)
        })
    }
}

/// Share of what nodes beyond the chain can gain that so many of them do: best first, so the
/// first ones bring most.
fn spread(budget: usize, depth: usize) -> f64 {
    1.0 - (-(budget.saturating_sub(depth) as f64) / HALF).exp2()
}

impl Repeated {
    /// The class behind so many drafts that were right.
    fn class(self, drafts: usize) -> usize {
        match self.again {
            true => AGAIN,
            false => {
                let longer = REPEATS[1..].iter();
                let at_least = |&&(least, _): &&(usize, f64)| self.len + drafts >= least;
                longer.take_while(at_least).count()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> (Acceptance, Acceptance) {
        (Acceptance::default(), Acceptance::new(Scope::Engine))
    }

    fn outcome(depth: usize, accepted: usize, spine: usize) -> Outcome<'static> {
        Outcome {
            depth,
            accepted,
            spine,
            ..Outcome::default()
        }
    }

    /// Takes in a step of a chain as an engine does.
    fn chain(own: &mut Acceptance, all: &mut Acceptance, depth: usize, right: usize) {
        own.take_chain(Some(all), &outcome(depth, right, right));
        all.take_chain(None, &outcome(depth, right, right));
    }

    fn phrase(len: usize) -> Repeated {
        Repeated { len, again: false }
    }

    fn tokens(reach: impl Iterator<Item = f64>) -> f64 {
        1.0 + reach.sum::<f64>()
    }

    #[test]
    fn positions_are_judged_as_far_as_they_were_reached() {
        let (mut own, mut all) = both();
        assert!((tokens(own.chain(&all, 2)) - (1.0 + 0.95 + 0.9025)).abs() < 1e-9);
        (0..200).for_each(|_| chain(&mut own, &mut all, 4, 2));
        // The third draft is always wrong; of the fourth nothing is known, and nothing follows it.
        let tokens = tokens(own.chain(&all, 4));
        assert!((2.8..3.2).contains(&tokens), "{tokens}");
        assert_eq!(own.chain.rates.len(), 3);
    }

    #[test]
    fn drafts_behind_the_end_are_neither_right_nor_wrong() {
        let (mut own, mut all) = both();
        let text = [1, 2, 3];
        for _ in 0..50 {
            let outcome = Outcome {
                tokens: &text,
                ended: true,
                ..outcome(15, 5, 5)
            };
            own.take_tree(Some(&all), 31, &outcome);
            all.take_tree(None, 31, &outcome);
        }
        assert_eq!((own.chain.rates.len(), own.trees.count), (3, 0.0));
        assert!(own.chain(&all, 3).all(|reach| reach > 0.9));
    }

    #[test]
    fn what_others_saw_is_where_a_sequence_starts() {
        let (own, mut all) = both();
        (0..200).for_each(|_| all.take_mtp(None, &outcome(3, 0, 0)));
        assert!(tokens(own.mtp(&all, 3)) < 1.3);
    }

    #[test]
    fn few_steps_change_little_and_many_change_all() {
        let (mut own, mut all) = both();
        // All are right but for one in twenty.
        for step in 0..400 {
            all.take_chain(None, &outcome(4, 4 * usize::from(step % 5 > 0), 0));
            all.take_chain(None, &outcome(4, 4, 4));
        }
        let of = |own: &Acceptance, all: &Acceptance| tokens(own.chain(all, 4));
        let before = of(&own, &all);
        own.take_chain(Some(&all), &outcome(4, 0, 0));
        let after = of(&own, &all);
        assert!((0.8 * before..before).contains(&after), "{before} {after}");
        (0..40).for_each(|_| own.take_chain(Some(&all), &outcome(4, 0, 0)));
        assert!(of(&own, &all) < 1.3, "{}", of(&own, &all));
        (0..60).for_each(|_| own.take_chain(Some(&all), &outcome(4, 4, 4)));
        assert!(of(&own, &all) > 4.0, "{}", of(&own, &all));
    }

    #[test]
    fn an_engine_forgets_later_than_a_sequence() {
        let (mut own, mut all) = both();
        let nobody = Acceptance::default();
        for acceptance in [&mut own, &mut all] {
            (0..100).for_each(|_| acceptance.take_chain(None, &outcome(1, 1, 1)));
            (0..20).for_each(|_| acceptance.take_chain(None, &outcome(1, 0, 0)));
        }
        assert!(tokens(own.chain(&nobody, 1)) < 1.6);
        assert!(tokens(all.chain(&nobody, 1)) > 1.7);
    }

    #[test]
    fn a_tree_is_the_chain_and_its_gain() {
        let (mut own, mut all) = both();
        for _ in 0..200 {
            own.take_tree(Some(&all), 22, &outcome(4, 3, 2));
            all.take_tree(None, 22, &outcome(4, 3, 2));
        }
        let gain = |budget| own.tree_gain(&all, budget, 4);
        assert!((gain(22) - 1.0).abs() < 0.1, "{}", gain(22));
        // What one size teaches holds for all: less for fewer nodes, not much for many more.
        assert!((0.0..0.2).contains(&gain(5)), "{}", gain(5));
        assert!((1.0..1.5).contains(&gain(63)), "{}", gain(63));
    }

    #[test]
    fn repeats_are_judged_by_what_came_out() {
        let (mut own, mut all) = both();
        for _ in 0..100 {
            for (repeated, tokens) in [(4, &[1, 9][..]), (40, &[1, 2, 3])] {
                own.take_repeat(Some(&all), phrase(repeated), &[1, 2, 3, 4], tokens);
                all.take_repeat(None, phrase(repeated), &[1, 2, 3, 4], tokens);
            }
        }
        let of = |len| tokens(own.surety(&all).reach(phrase(len), 15));
        // The second draft behind 4 tokens is one behind 5.
        assert!((1.9..2.2).contains(&of(4)), "{}", of(4));
        assert!((2.9..3.1).contains(&of(3)), "{}", of(3));
        assert!(of(17) > 8.0, "{}", of(17));
        // No repeat, nothing to learn.
        own.take_repeat(Some(&all), phrase(0), &[], &[1]);
    }

    /// Most repeats end at once, and those that do not are long: a mean over all tokens would
    /// take their middle for the rule.
    #[test]
    fn repeats_that_go_on_do_not_speak_for_those_that_end() {
        let (mut own, mut all) = both();
        let copy: Vec<u32> = (0..15).collect();
        for round in 0..200 {
            let tokens = if round % 5 == 0 { &copy[..] } else { &[99] };
            own.take_repeat(Some(&all), phrase(4), &copy, tokens);
            all.take_repeat(None, phrase(4), &copy, tokens);
        }
        let tokens = tokens(own.surety(&all).reach(phrase(4), 15));
        assert!((3.2..4.8).contains(&tokens), "{tokens}");
    }
}
