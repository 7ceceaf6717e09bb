use std::collections::VecDeque;
use std::time::Duration;

/// Share of the ceiling that a planned step may take; the rest is for what comes between steps.
const AIM: f64 = 0.9;
/// Prompt tokens that a step takes in any case: prompts go on, however slow the streams are.
const LEAST: usize = 16;
/// First guess of what a step bears next to running streams.
const FIRST: usize = 64;
/// Steps remembered, of each kind.
const MEMORY: usize = 32;
/// Steps with chunks whose strain is remembered. One in so many may go beyond all others, and
/// the ceiling is kept by 99 of 100.
const STRAINS: usize = 256;
/// With so few of them all count.
const FEW: usize = 32;
/// The latest ones count without exception.
const LATEST: usize = 8;
/// What older ones count at most. A step that took longer was held up by something that would
/// have held a small one up, too: the first pass of a shape, another program.
const MOST: f64 = 2.0;
/// Tokens before a chunk that make it at most twice as dear as one without. Attention grows with
/// them, the rest does not.
const DOUBLING: f64 = 1024.0;

/// How many prompt tokens a step can take in without holding running streams up for too long,
/// learnt from what steps cost.
///
/// A step costs no less with more rows or behind more tokens, and no more than in proportion to
/// them. So every measured step bounds the cost of every other from above, and the least of these
/// bounds is the price. How far steps went beyond their prices of late is allowed for: it is
/// noise, or a machine that others use, too.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Longest step while streams run, in milliseconds.
    ceiling_ms: Option<f64>,
    /// Steps that only decoded.
    decodes: VecDeque<Step>,
    /// Steps of chunks alone.
    chunks: VecDeque<Step>,
    /// Steps of both.
    mixed: VecDeque<Step>,
    /// Measured costs of steps with chunks by their prices, the latest first.
    strains: VecDeque<f64>,
    /// Chunks that were begun, and are not known to be done.
    begun: Begun,
}

/// Passes whose outputs nobody has waited for: a GPU works on them while the next one is planned.
#[derive(Clone, Copy, Debug, Default)]
struct Begun {
    passes: usize,
    tokens: usize,
    past: usize,
    ms: f64,
}

/// Work of one step, and what it took.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Decode rows.
    rows: usize,
    /// Prompt tokens.
    tokens: usize,
    /// Tokens before the furthest chunk. Streams are at different places in their texts: their
    /// contexts are not looked at.
    past: usize,
    ms: f64,
}

impl Step {
    /// Most that another step takes, by this one of the same kind.
    fn bounds(&self, rows: usize, tokens: usize, past: usize) -> f64 {
        let times = |other: usize, own: usize| other as f64 / own.max(1) as f64;
        let work = times(rows, self.rows).max(times(tokens, self.tokens));
        let context = |past: usize, tokens: usize| past as f64 + tokens as f64 / 2.0 + DOUBLING;
        let context = context(past, tokens) / context(self.past, self.tokens);
        self.ms * work.max(1.0) * context.max(1.0)
    }
}

/// The least bound that the steps give.
fn price(steps: &VecDeque<Step>, rows: usize, tokens: usize, past: usize) -> Option<f64> {
    let bounds = steps.iter().map(|step| step.bounds(rows, tokens, past));
    bounds.min_by(f64::total_cmp)
}

fn remember<T>(values: &mut VecDeque<T>, value: T, most: usize) {
    values.truncate(most - 1);
    values.push_front(value);
}

impl Pace {
    pub fn new(ceiling: Option<Duration>) -> Self {
        Self {
            ceiling_ms: ceiling.map(|ceiling| ceiling.as_secs_f64() * 1e3),
            decodes: VecDeque::new(),
            chunks: VecDeque::new(),
            mixed: VecDeque::new(),
            strains: VecDeque::new(),
            begun: Begun::default(),
        }
    }

    /// Prompt tokens for a step that decodes `rows` rows, at most `most`, the furthest of them
    /// behind `past` others.
    pub fn budget(&self, rows: usize, past: usize, most: usize) -> usize {
        let (Some(ceiling), true) = (self.ceiling_ms, rows > 0) else {
            return most;
        };
        let most_price = AIM * ceiling / self.strain();
        let fits = |tokens: usize| match self.price_of(rows, tokens, past) {
            Some(price) => price <= most_price,
            None => tokens <= FIRST,
        };
        let (mut fit, mut beyond) = (LEAST.min(most), most + 1);
        while fit + 1 < beyond {
            let middle = fit.midpoint(beyond);
            match fits(middle) {
                true => fit = middle,
                false => beyond = middle,
            }
        }
        fit
    }

    /// Takes in what a step of `rows` decode rows and `tokens` prompt tokens cost, the furthest of
    /// them behind `past` others. Without outputs that had to be waited for, it may only have
    /// begun: then the next one with some tells the mean of both.
    pub fn record(
        &mut self,
        rows: usize,
        tokens: usize,
        past: usize,
        took: Duration,
        outputs: bool,
    ) {
        let before = std::mem::take(&mut self.begun);
        if before.passes > 0 && rows > 0 {
            return;
        }
        let all = Begun {
            passes: before.passes + 1,
            tokens: before.tokens + tokens,
            past: before.past.max(past),
            ms: before.ms + took.as_secs_f64() * 1e3,
        };
        if outputs {
            let (tokens, took) = (all.tokens / all.passes, all.ms / all.passes as f64);
            self.learn(rows, tokens, all.past, took);
        } else {
            self.begun = all;
        }
    }

    fn learn(&mut self, rows: usize, tokens: usize, past: usize, took: f64) {
        if tokens > 0
            && let Some(price) = self.price_of(rows, tokens, past)
        {
            remember(&mut self.strains, took / price, STRAINS);
        }
        let steps = match (rows, tokens) {
            (_, 0) => &mut self.decodes,
            (0, _) => &mut self.chunks,
            _ => &mut self.mixed,
        };
        let step = Step {
            rows,
            tokens,
            past,
            ms: took,
        };
        remember(steps, step, MEMORY);
    }

    /// How far steps go beyond their prices: the latest ones, and but for the worst all others.
    fn strain(&self) -> f64 {
        let (mut most, mut second) = (1.0f64, 1.0f64);
        for &strain in &self.strains {
            second = second.max(strain.min(most));
            most = most.max(strain);
        }
        let usual = match self.strains.len() {
            0..FEW => most,
            _ => second,
        };
        let latest = self.strains.iter().take(LATEST);
        latest.fold(usual.min(MOST), |most, &strain| most.max(strain))
    }

    /// Price of a step in milliseconds; none before anything like it was measured.
    fn price_of(&self, rows: usize, tokens: usize, past: usize) -> Option<f64> {
        let decode = price(&self.decodes, rows, 0, 0);
        if tokens == 0 {
            return decode;
        }
        // The rows of a decode step go through the same model, and a drafter besides.
        let chunk = price(&self.chunks, 0, tokens, past);
        let chunk = chunk.or_else(|| price(&self.decodes, tokens, 0, past));
        if rows == 0 {
            return chunk;
        }
        let sum = decode.zip(chunk).map(|(decode, chunk)| decode + chunk);
        let mixed = price(&self.mixed, rows, tokens, past);
        sum.into_iter().chain(mixed).min_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const CEILING_MS: f64 = 100.0;

    /// A device by what a pass costs, its rows, and the tokens before them.
    #[derive(Clone, Copy, Debug)]
    struct Device {
        pass_ms: f64,
        row_ms: f64,
        /// Tokens before a row that make it twice as dear.
        doubling: f64,
        /// How much dearer a step can be by chance, and how often it is half as dear again.
        noise: f64,
        jolts: f64,
        /// What the first chunk of each power of two takes besides.
        first_ms: f64,
    }

    impl Device {
        fn cost_ms(&self, rows: usize, tokens: usize, past: usize) -> f64 {
            let pass = |rows: usize, past: usize| {
                let context = past as f64 + rows as f64 / 2.0;
                let row = self.row_ms * (1.0 + context / self.doubling);
                f64::from(rows > 0) * self.pass_ms + rows as f64 * row
            };
            pass(rows, 500) + pass(tokens, past)
        }

        /// A prompt whose end is read, in the least chunks, at half of the ceiling.
        fn longest(&self) -> usize {
            let lens = (1..=16).map(|thousand| 1000 * thousand);
            let fits = |len: &usize| self.cost_ms(16, LEAST, *len) < CEILING_MS / 2.0;
            lens.take_while(fits).last().unwrap()
        }

        fn step(&self, rows: usize, tokens: usize, past: usize, rng: &mut ChaCha8Rng) -> f64 {
            let chance = 1.0 + self.noise * rng.random::<f64>();
            let jolt = 1.0 + 0.5 * f64::from(rng.random_bool(self.jolts));
            self.cost_ms(rows, tokens, past) * chance * jolt
        }

        /// Steps of a stream of `rows` rows beside a prompt of `len` tokens, in milliseconds; with
        /// seed 0 the first ones ever.
        fn read(&self, pace: &mut Pace, rows: usize, len: usize, seed: u64) -> Vec<f64> {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let (mut past, mut steps) = (0, Vec::new());
            let mut shapes = match seed {
                0 => Vec::new(),
                _ => (0..16).collect(),
            };
            while past < len {
                let tokens = pace.budget(rows, past, 2048).min(len - past);
                let mut took = self.step(rows, tokens, past, &mut rng);
                if !shapes.contains(&tokens.ilog2()) {
                    shapes.push(tokens.ilog2());
                    took += self.first_ms;
                }
                pace.record(rows, tokens, past, ms(took), true);
                steps.push(took);
                past += tokens;
            }
            steps
        }
    }

    fn ms(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    fn pace() -> Pace {
        Pace::new(Some(ms(CEILING_MS)))
    }

    const DEVICES: [Device; 4] = [
        // A GPU: a pass costs as much as many rows.
        Device {
            pass_ms: 13.0,
            row_ms: 0.09,
            doubling: 50_000.0,
            noise: 0.05,
            jolts: 0.002,
            first_ms: 150.0,
        },
        // A processor: rows are all there is to it, and attention soon costs most.
        Device {
            pass_ms: 1.0,
            row_ms: 0.4,
            doubling: 1200.0,
            noise: 0.1,
            jolts: 0.01,
            first_ms: 0.0,
        },
        // The same with other work beside it.
        Device {
            pass_ms: 1.0,
            row_ms: 0.4,
            doubling: 1200.0,
            noise: 0.6,
            jolts: 0.05,
            first_ms: 0.0,
        },
        // Everything is as expected.
        Device {
            pass_ms: 5.0,
            row_ms: 0.1,
            doubling: f64::INFINITY,
            noise: 0.0,
            jolts: 0.0,
            first_ms: 0.0,
        },
    ];

    #[test]
    fn steps_beside_a_long_prompt_stay_under_the_ceiling() {
        for device in DEVICES {
            let (mut steps, mut pace) = (Vec::new(), pace());
            for seed in 0..20 {
                // Streams alone, then beside a prompt.
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                for _ in 0..20 {
                    let alone = device.step(16, 0, 0, &mut rng);
                    pace.record(16, 0, 0, ms(alone), true);
                }
                steps.extend(device.read(&mut pace, 16, device.longest(), seed));
            }
            steps.sort_by(f64::total_cmp);
            let p99 = steps[steps.len() * 99 / 100];
            let median = steps[steps.len() / 2];
            assert!(p99 <= CEILING_MS, "{device:?}: p99 {p99} ms");
            assert!(median > 0.45 * CEILING_MS, "{device:?}: {median} ms");
        }
    }

    #[test]
    fn an_overrun_makes_the_next_chunk_smaller_and_is_forgotten() {
        let device = DEVICES[3];
        let mut pace = pace();
        pace.record(16, 0, 0, ms(device.cost_ms(16, 0, 0)), true);
        device.read(&mut pace, 16, 100_000, 1);
        let settled = pace.budget(16, 0, 4096);
        assert!((700..=900).contains(&settled), "{settled} tokens");
        pace.record(16, settled, 0, ms(2.0 * CEILING_MS), true);
        let next = pace.budget(16, 0, 4096);
        assert!(next < settled / 2, "{next} tokens");
        device.read(&mut pace, 16, 200_000, 2);
        assert!(pace.budget(16, 0, 4096) > settled * 9 / 10);
    }

    #[test]
    fn a_prompt_gets_on_however_slow_the_streams_are() {
        let mut pace = pace();
        pace.record(16, 0, 0, ms(5.0 * CEILING_MS), true);
        assert_eq!(pace.budget(16, 0, 4096), LEAST);
        assert_eq!(pace.budget(16, 0, 8), 8);
        pace.record(16, 16, 0, ms(1e6), true);
        assert_eq!(pace.budget(16, 16, 4096), LEAST);
    }

    #[test]
    fn tokens_before_a_chunk_are_paid_for() {
        let mut pace = pace();
        pace.record(1, 0, 0, ms(1.0), true);
        pace.record(0, 512, 0, ms(60.0), true);
        let (near, far) = (pace.budget(1, 0, 4096), pace.budget(1, 30_000, 4096));
        assert!(near > 512, "{near} tokens");
        assert_eq!(far, LEAST);
        pace.record(1, LEAST, 30_000, ms(3.0), true);
        assert!(pace.budget(1, 30_000, 4096) > 400);
    }

    /// A GPU that has only begun a chunk says nothing of what it costs.
    #[test]
    fn chunks_that_nobody_waits_for_are_measured_together() {
        let mut pace = pace();
        pace.record(1, 0, 0, ms(13.0), true);
        for chunk in 0..7 {
            pace.record(0, 2048, 2048 * chunk, ms(10.0), false);
        }
        assert!(pace.budget(1, 0, 4096) < 100);
        // The last one takes as long as all that was begun.
        pace.record(0, 2048, 2048 * 7, ms(8.0 * 200.0 - 70.0), true);
        let budget = pace.budget(1, 2048 * 7, 4096);
        assert_eq!(budget, LEAST);
        pace.record(1, budget, 0, ms(28.0), true);
        assert!((40..60).contains(&pace.budget(1, 0, 4096)));
        // Nor does a step that has to wait for one before it.
        pace.record(0, 2048, 0, ms(10.0), false);
        pace.record(1, 0, 0, ms(203.0), true);
        pace.record(1, 0, 0, ms(14.0), true);
        assert!((40..60).contains(&pace.budget(1, 0, 4096)));
    }

    #[test]
    fn without_streams_or_ceiling_a_step_is_full() {
        let mut slow = pace();
        slow.record(0, 10, 0, Duration::from_secs(1), true);
        assert_eq!(slow.budget(0, 0, 256), 256);
        assert_eq!(Pace::new(None).budget(9, 0, 256), 256);
        assert_eq!(pace().budget(9, 0, 256), FIRST);
    }
}
