use std::time::Duration;

/// Share of the ceiling that a planned step may take; the rest is for what cannot be foreseen.
const AIM: f64 = 0.8;
/// Prompt tokens that a step takes in any case: prompts go on, however slow the streams are.
const LEAST: usize = 16;
/// First guess of what a step bears next to running streams.
const FIRST: usize = 64;
/// How much a new measurement counts when steps become cheaper; dearer ones count at once.
const DECAY: f64 = 0.2;

/// How many prompt tokens a step can take in without holding running streams up for too long,
/// learnt from what steps cost.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Longest step while streams run, in milliseconds.
    ceiling_ms: Option<f64>,
    /// Milliseconds of the decode part, by the power of two that holds its rows.
    decode_ms: Vec<Option<f64>>,
    /// Milliseconds per prompt token, at the chunk sizes of late.
    token_ms: Option<f64>,
}

impl Pace {
    pub fn new(ceiling: Option<Duration>) -> Self {
        Self {
            ceiling_ms: ceiling.map(|ceiling| ceiling.as_secs_f64() * 1e3),
            ..Self::default()
        }
    }

    /// Prompt tokens for a step that decodes `rows` rows, at most `most`.
    pub fn budget(&self, rows: usize, most: usize) -> usize {
        let (Some(ceiling), true) = (self.ceiling_ms, rows > 0) else {
            return most;
        };
        let budget = match self.token_ms {
            None => FIRST,
            Some(token_ms) => {
                let left = AIM * ceiling - self.decode_of(rows).unwrap_or(0.0);
                (left / token_ms).max(0.0) as usize
            }
        };
        budget.max(LEAST).min(most)
    }

    /// Takes in what a step of `rows` decode rows and `tokens` prompt tokens cost.
    pub fn record(&mut self, rows: usize, tokens: usize, took: Duration) {
        let took = took.as_secs_f64() * 1e3;
        if tokens == 0 {
            let bucket = bucket(rows);
            if self.decode_ms.len() <= bucket {
                self.decode_ms.resize(bucket + 1, None);
            }
            learn(&mut self.decode_ms[bucket], took);
            return;
        }
        let decode = match rows {
            0 => 0.0,
            rows => self.decode_of(rows).unwrap_or(0.0),
        };
        let prefill = (took - decode).max(0.05 * took);
        learn(&mut self.token_ms, prefill / tokens as f64);
    }

    /// What decoding so many rows costs: as measured, or as the nearest smaller number.
    fn decode_of(&self, rows: usize) -> Option<f64> {
        let measured = self.decode_ms.iter().take(bucket(rows) + 1).rev();
        measured.flatten().next().copied()
    }
}

fn bucket(rows: usize) -> usize {
    rows.next_power_of_two().ilog2() as usize
}

fn learn(value: &mut Option<f64>, measured: f64) {
    *value = Some(match *value {
        Some(known) if measured < known => known + DECAY * (measured - known),
        _ => measured,
    });
}

/// Divides `budget` so that nobody who wants less than an equal share goes short, and those who
/// want more get the same (max-min fairness). In the order of `wants`.
pub(crate) fn share(mut budget: usize, wants: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..wants.len()).filter(|&i| wants[i] > 0).collect();
    order.sort_by_key(|&i| wants[i]);
    let mut shares = vec![0; wants.len()];
    for (done, &i) in order.iter().enumerate() {
        let equal = budget.div_ceil(order.len() - done);
        shares[i] = wants[i].min(equal);
        budget -= shares[i];
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device whose steps cost this: a pass has a price of its own, rows are cheap.
    fn cost_ms(rows: usize, tokens: usize) -> f64 {
        let decode = if rows > 0 {
            10.0 + 0.1 * rows as f64
        } else {
            0.0
        };
        let prefill = if tokens > 0 {
            12.0 + 0.1 * tokens as f64
        } else {
            0.0
        };
        decode + prefill
    }

    fn step(pace: &mut Pace, rows: usize, tokens: usize) -> f64 {
        let took = cost_ms(rows, tokens);
        pace.record(rows, tokens, Duration::from_secs_f64(took / 1e3));
        took
    }

    #[test]
    fn steps_stay_under_the_ceiling_and_come_near() {
        let mut pace = Pace::new(Some(Duration::from_millis(100)));
        step(&mut pace, 16, 0);
        let (mut longest, mut tokens) = (0.0f64, 0);
        for _ in 0..100 {
            tokens = pace.budget(16, 4096);
            longest = longest.max(step(&mut pace, 16, tokens));
        }
        assert!(longest <= 100.0, "{longest} ms");
        assert!(cost_ms(16, tokens) > 60.0, "{tokens} tokens in the end");
    }

    #[test]
    fn dearer_steps_are_answered_at_once() {
        let mut pace = Pace::new(Some(Duration::from_millis(100)));
        pace.record(0, 100, Duration::from_millis(10));
        assert_eq!(pace.budget(1, 4096), 800);
        pace.record(0, 100, Duration::from_millis(40));
        assert_eq!(pace.budget(1, 4096), 200);
        pace.record(0, 100, Duration::from_secs(10));
        assert_eq!(pace.budget(1, 4096), LEAST);
    }

    #[test]
    fn without_streams_or_ceiling_a_step_is_full() {
        let mut pace = Pace::new(Some(Duration::from_millis(5)));
        pace.record(0, 10, Duration::from_secs(1));
        assert_eq!(pace.budget(0, 256), 256);
        assert_eq!(pace.budget(1, 256), LEAST);
        assert_eq!(pace.budget(1, 8), 8);
        assert_eq!(Pace::new(None).budget(9, 256), 256);
        assert_eq!(
            Pace::new(Some(Duration::from_secs(1))).budget(9, 256),
            FIRST
        );
    }

    #[test]
    fn small_wants_are_met_and_large_ones_share_alike() {
        assert_eq!(share(100, &[1000, 10, 0, 500]), [45, 10, 0, 45]);
        assert_eq!(share(100, &[20, 30]), [20, 30]);
        assert_eq!(share(1, &[5, 5, 5]), [1, 0, 0]);
        assert!(share(7, &[]).is_empty());
        for budget in 0..40 {
            let shares = share(budget, &[9, 3, 14]);
            assert_eq!(shares.iter().sum::<usize>(), budget.min(26));
        }
    }
}
