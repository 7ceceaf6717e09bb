use proptest::prelude::*;

use super::from_candidates;
use crate::filter::Candidate;
use crate::{Allowed, Candidates, Distribution, Error, History, SamplingParams, constrained};

/// The likeliest `k` tokens below `allowed`, by their definition.
fn top(logits: &[f32], allowed: usize, k: usize) -> (Vec<u32>, Vec<f32>, f64, bool) {
    let mut ranked: Vec<Candidate> = (0..)
        .zip(&logits[..allowed.min(logits.len())])
        .map(|(token, &logit)| Candidate::new(token, logit))
        .collect();
    let sum: f64 = ranked.iter().map(|c| f64::from(c.logit).exp()).sum();
    ranked.sort_by(Candidate::by_rank);
    ranked.retain(|c| c.logit > f32::NEG_INFINITY);
    let complete = ranked.len() <= k;
    ranked.truncate(k);
    // As far off as single precision puts it.
    let log_sum_exp = f64::from(sum.ln() as f32);
    let (ids, logits) = ranked.iter().map(|c| (c.token, c.logit)).unzip();
    (ids, logits, log_sum_exp, complete)
}

/// From candidates, and from the whole row.
fn both(
    logits: &[f32],
    params: &SamplingParams,
    history: &History,
    sizes: [usize; 2],
) -> (Option<Distribution>, Result<Distribution, Error>) {
    both_of(logits, params, history, sizes, &Allowed::All)
}

fn both_of(
    logits: &[f32],
    params: &SamplingParams,
    history: &History,
    [allowed, k]: [usize; 2],
    next: &Allowed,
) -> (Option<Distribution>, Result<Distribution, Error>) {
    let (ids, values, log_sum_exp, complete) = top(logits, allowed, k);
    let candidates = Candidates {
        ids: &ids,
        logits: &values,
        log_sum_exp,
        complete,
    };
    (
        from_candidates(&candidates, params, history, allowed, next),
        constrained(logits, params, history, allowed, next),
    )
}

/// Rows from flat to peaked, some coarse enough for ties at the edge of the candidates.
fn logits() -> impl Strategy<Value = Vec<f32>> {
    let row = |scale: f32| prop::collection::vec(-scale..scale, 20..600);
    let coarse = row(6.0).prop_map(|row| row.into_iter().map(f32::round).collect());
    let masked = row(5.0).prop_map(|mut row: Vec<f32>| {
        let every = |(i, l): (usize, &mut f32)| {
            if i % 5 != 0 {
                *l = f32::NEG_INFINITY;
            }
        };
        row.iter_mut().enumerate().for_each(every);
        row
    });
    prop_oneof![row(1.0), row(12.0), row(40.0), coarse, masked]
}

prop_compose! {
    fn params()(
        temperature in prop_oneof![Just(0.0f32), Just(1.0f32), 0.05f32..2.0],
        top_k in prop_oneof![Just(0usize), 1usize..90],
        top_p in prop_oneof![Just(1.0f32), 0.0f32..1.0],
        min_p in prop_oneof![Just(0.0f32), 0.0f32..0.5],
        presence_penalty in prop_oneof![Just(0.0f32), -1.0f32..2.0],
        frequency_penalty in prop_oneof![Just(0.0f32), -1.0f32..2.0],
        repetition_penalty in prop_oneof![Just(1.0f32), 0.7f32..1.6],
        logit_bias in prop_oneof![
            Just(std::collections::BTreeMap::new()),
            prop::collection::btree_map(0u32..620, -8.0f32..8.0, 0..6),
        ],
    ) -> SamplingParams {
        SamplingParams {
            temperature, top_k, top_p, min_p, presence_penalty, frequency_penalty,
            repetition_penalty, logit_bias, seed: 0,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn candidates_give_what_the_whole_row_gives(
        logits in logits(),
        params in params(),
        prompt in prop::collection::vec(0u32..620, 0..40),
        output in prop::collection::vec(0u32..620, 0..40),
        allowed in 15usize..700,
        k in 1usize..80,
    ) {
        let mut history = History::new(&prompt);
        output.iter().for_each(|&token| history.push(token));
        let (fast, slow) = both(&logits, &params, &history, [allowed, k]);
        if let Some(fast) = fast {
            prop_assert_eq!(Ok(fast), slow);
        }
    }

    #[test]
    fn candidates_give_what_the_whole_row_gives_where_not_all_may_come(
        logits in logits(),
        params in params(),
        output in prop::collection::vec(0u32..620, 0..40),
        allowed in 15usize..700,
        k in 1usize..80,
        words in prop::collection::vec(any::<u32>(), 1..20),
        thin in any::<bool>(),
        listed in prop::collection::vec(0u32..620, 0..30),
    ) {
        let mut history = History::new(&[]);
        output.iter().for_each(|&token| history.push(token));
        let words = words.iter().map(|word| if thin { word & (word >> 7) & (word << 3) } else { *word });
        let masks = [Allowed::Mask(words.collect()), Allowed::Except(listed)];
        for next in masks {
            let (fast, slow) = both_of(&logits, &params, &history, [allowed, k], &next);
            if let Ok(slow) = &slow {
                prop_assert!(slow.tokens.iter().all(|&token| next.contains(token)));
            }
            if let Some(fast) = fast {
                prop_assert_eq!(Ok(fast), slow);
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The settings that people use need no whole row: they would be slow on every step.
    #[test]
    fn the_usual_settings_are_decided(seed in 0u64..1_000_000) {
        use rand_chacha::rand_core::{Rng, SeedableRng};
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let mut normal = || -> f32 {
            let unit = |n: u32| f64::from(n) / f64::from(u32::MAX);
            (0..12).map(|_| unit(random.next_u32())).sum::<f64>() as f32 - 6.0
        };
        let mut logits: Vec<f32> = (0..4000).map(|_| 2.0 * normal()).collect();
        (0..6).for_each(|i| logits[i * 31] = 14.0 + normal());
        let usual = |temperature, top_k, top_p, presence_penalty| SamplingParams {
            temperature, top_k, top_p, presence_penalty, ..SamplingParams::default()
        };
        let mut history = History::new(&[1, 2, 3]);
        history.push(31);
        for params in [
            usual(0.0, 0, 1.0, 0.0),
            usual(0.0, 0, 1.0, 1.5),
            usual(0.6, 20, 0.95, 0.0),
            usual(0.7, 20, 0.8, 1.5),
            usual(1.0, 20, 0.95, 1.5),
            usual(0.6, 0, 0.95, 0.0),
            usual(1.0, 0, 0.9, 0.0),
        ] {
            let (fast, slow) = both(&logits, &params, &history, [4000, 64]);
            prop_assert!(fast.is_some(), "{:?}", params);
            prop_assert_eq!(Ok(fast.unwrap_or_default()), slow);
        }
    }
}

#[test]
fn a_row_that_is_no_row_is_left_to_the_whole() {
    for bad in [f32::NAN, f32::INFINITY] {
        let (fast, slow) = both(
            &[1.0, bad, 2.0],
            &SamplingParams::default(),
            &History::default(),
            [3, 64],
        );
        assert!(fast.is_none() && slow.is_err(), "{bad}");
    }
    let none = [f32::NEG_INFINITY; 4];
    let (fast, slow) = both(
        &none,
        &SamplingParams::default(),
        &History::default(),
        [4, 64],
    );
    assert!(fast.is_none() && slow.is_err());
}

/// Both zeros are equal logits: the lowest id wins in either way of reading.
#[test]
fn zeros_of_both_signs_tie() {
    let logits = [-0.0f32, 0.0, -1.0];
    let greedy = SamplingParams::default();
    let (fast, slow) = both(&logits, &greedy, &History::default(), [3, 64]);
    assert_eq!(fast, Some(Distribution::one_hot(0)));
    assert_eq!(slow, Ok(Distribution::one_hot(0)));
}
