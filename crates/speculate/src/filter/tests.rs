use super::*;

/// Logits whose softmax is `probs`.
fn logits_of(probs: &[f32]) -> Vec<f32> {
    probs.iter().map(|prob| prob.ln()).collect()
}

fn filtered(logits: &[f32], params: SamplingParams) -> Distribution {
    distribution(logits, &params, &History::default(), logits.len()).unwrap()
}

fn at_one() -> SamplingParams {
    SamplingParams {
        temperature: 1.0,
        ..SamplingParams::default()
    }
}

#[track_caller]
fn assert_close(distribution: &Distribution, expected: &[(u32, f32)]) {
    let tokens: Vec<u32> = expected.iter().map(|&(token, _)| token).collect();
    assert_eq!(distribution.tokens, tokens, "{distribution:?}");
    for ((_, prob), &(token, expected)) in distribution.iter().zip(expected) {
        assert!((prob - expected).abs() < 1e-6, "{token}: {prob} {expected}");
    }
}

#[test]
fn softmax_and_temperature() {
    let logits = logits_of(&[0.5, 0.3, 0.2]);
    assert_close(
        &filtered(&logits, at_one()),
        &[(0, 0.5), (1, 0.3), (2, 0.2)],
    );
    // Half the temperature squares the weights: 0.25, 0.09, 0.04.
    let params = SamplingParams {
        temperature: 0.5,
        ..at_one()
    };
    let squared = [(0, 0.25 / 0.38), (1, 0.09 / 0.38), (2, 0.04 / 0.38)];
    assert_close(&filtered(&logits, params), &squared);
}

#[test]
fn temperatures_near_zero_are_greedy() {
    let params = SamplingParams {
        temperature: f32::MIN_POSITIVE,
        ..at_one()
    };
    assert_close(&filtered(&[1.0, 3.0, 2.9999], params), &[(1, 1.0)]);
}

#[test]
fn huge_logits_do_not_overflow() {
    let expected = [(0, 0.5), (1, 0.5)];
    assert_close(&filtered(&[3e38, 3e38, -3e38], at_one()), &expected);
}

#[test]
fn top_k_keeps_the_likeliest_in_id_order() {
    let logits = logits_of(&[0.2, 0.1, 0.4, 0.3]);
    for (top_k, expected) in [
        (1, vec![(2, 1.0)]),
        (2, vec![(2, 0.4 / 0.7), (3, 0.3 / 0.7)]),
        (3, vec![(0, 0.2 / 0.9), (2, 0.4 / 0.9), (3, 0.3 / 0.9)]),
        (9, vec![(0, 0.2), (1, 0.1), (2, 0.4), (3, 0.3)]),
        (0, vec![(0, 0.2), (1, 0.1), (2, 0.4), (3, 0.3)]),
    ] {
        assert_close(
            &filtered(&logits, SamplingParams { top_k, ..at_one() }),
            &expected,
        );
    }
}

#[test]
fn top_p_keeps_while_the_mass_before_is_below() {
    let logits = logits_of(&[0.2, 0.5, 0.3]);
    for (top_p, tokens) in [
        (0.0, vec![1]),
        (0.5, vec![1]),
        (0.501, vec![1, 2]),
        (0.8, vec![1, 2]),
        (0.801, vec![0, 1, 2]),
        (1.0, vec![0, 1, 2]),
    ] {
        let distribution = filtered(&logits, SamplingParams { top_p, ..at_one() });
        assert_eq!(distribution.tokens, tokens, "{top_p}");
    }
    let both = filtered(
        &logits,
        SamplingParams {
            top_p: 0.7,
            ..at_one()
        },
    );
    assert_close(&both, &[(1, 0.625), (2, 0.375)]);
}

#[test]
fn top_p_counts_mass_after_top_k() {
    let logits = logits_of(&[0.2, 0.5, 0.3]);
    // Renormalised, the first of two has 0.625.
    for (top_p, tokens) in [(0.6, vec![1]), (0.63, vec![1, 2])] {
        let params = SamplingParams {
            top_k: 2,
            top_p,
            ..at_one()
        };
        assert_eq!(filtered(&logits, params).tokens, tokens, "{top_p}");
    }
}

#[test]
fn min_p_is_relative_to_the_largest() {
    let logits = logits_of(&[0.2, 0.5, 0.3]);
    for (min_p, tokens) in [(0.39, vec![0, 1, 2]), (0.41, vec![1, 2]), (1.0, vec![1])] {
        let distribution = filtered(&logits, SamplingParams { min_p, ..at_one() });
        assert_eq!(distribution.tokens, tokens, "{min_p}");
    }
}

#[test]
fn ties_go_to_the_lowest_id() {
    let logits = [0.0, 2.0, 2.0, 2.0, 2.0, 1.0];
    assert_eq!(argmax(&logits, 6), Ok(1));
    let top_k = filtered(
        &logits,
        SamplingParams {
            top_k: 2,
            ..at_one()
        },
    );
    assert_eq!(top_k.tokens, [1, 2]);
    let top_p = filtered(
        &[0.0; 4],
        SamplingParams {
            top_p: 0.5,
            ..at_one()
        },
    );
    assert_eq!(top_p.tokens, [0, 1]);
    // More ties than the one-pass selection holds at once.
    let many = vec![1.0; 5000];
    let top_k = filtered(
        &many,
        SamplingParams {
            top_k: 200,
            ..at_one()
        },
    );
    assert_eq!(top_k.tokens, (0..200).collect::<Vec<u32>>());
    let top_p = filtered(
        &many,
        SamplingParams {
            top_p: 0.1,
            ..at_one()
        },
    );
    assert_eq!(top_p.tokens, (0..500).collect::<Vec<u32>>());
}

#[test]
fn zero_temperature_is_one_hot_after_bias_and_penalties() {
    let logits = [1.0, 3.0, 2.0];
    let greedy = SamplingParams::default();
    assert_eq!(filtered(&logits, greedy.clone()), Distribution::one_hot(1));
    let biased = SamplingParams {
        logit_bias: [(2, 1.5)].into(),
        ..greedy.clone()
    };
    assert_eq!(filtered(&logits, biased), Distribution::one_hot(2));
    let mut history = History::default();
    history.push(1);
    let params = SamplingParams {
        presence_penalty: 1.5,
        ..greedy
    };
    let penalised = distribution(&logits, &params, &history, 3);
    assert_eq!(penalised, Ok(Distribution::one_hot(2)));
}

#[test]
fn bias_and_penalties_by_hand() {
    let mut history = History::new(&[0, 1, 900]);
    for token in [1, 1, 2] {
        history.push(token);
    }
    let mut params = SamplingParams {
        repetition_penalty: 2.0,
        frequency_penalty: 0.25,
        presence_penalty: 0.5,
        ..at_one()
    };
    let logits = [2.0, -1.0, 1.0, 0.5];
    // 0: in the prompt only; 1: negative, twice in the output; 2: once; 3: untouched.
    assert_eq!(
        *adjusted(&logits, &params, &history),
        [1.0, -3.0, -0.25, 0.5]
    );
    // The bias comes first, so token 1 is positive when the repetition penalty sees it.
    params.logit_bias = [(1, 3.0), (77, 1.0)].into();
    assert_eq!(
        *adjusted(&logits, &params, &history),
        [1.0, 0.0, -0.25, 0.5]
    );
}

#[test]
fn neutral_parameters_leave_the_logits() {
    let mut history = History::new(&[0]);
    history.push(0);
    let untouched = adjusted(&[1.0, 2.0], &at_one(), &history);
    assert!(matches!(untouched, Cow::Borrowed(_)));
}

#[test]
fn ids_from_allowed_on_are_out() {
    let logits = [1.0, 2.0, 9.0, f32::NAN];
    assert_eq!(argmax(&logits, 2), Ok(1));
    let history = History::default();
    let two = distribution(&logits, &at_one(), &history, 2).unwrap();
    assert_eq!(two.tokens, [0, 1]);
    assert_eq!(argmax(&logits[..3], 50), Ok(2));
}

#[test]
fn masked_tokens_have_no_probability() {
    let masked = f32::NEG_INFINITY;
    let distribution = filtered(&[masked, 1.0, masked, 1.0], at_one());
    assert_close(&distribution, &[(1, 0.5), (3, 0.5)]);
}

#[test]
fn broken_logits_are_errors() {
    let history = History::default();
    for params in [at_one(), SamplingParams::default()] {
        let run = |logits: &[f32], allowed| distribution(logits, &params, &history, allowed);
        assert!(matches!(
            run(&[0.0, f32::NAN], 2),
            Err(Error::Logit { token: 1, .. })
        ));
        assert_eq!(
            run(&[f32::INFINITY, 0.0], 2),
            Err(Error::Logit {
                token: 0,
                value: f32::INFINITY
            })
        );
        let none = Error::NoCandidate {
            allowed: 5,
            logits: 2,
        };
        assert_eq!(run(&[f32::NEG_INFINITY; 2], 5), Err(none));
        assert!(matches!(run(&[], 0), Err(Error::NoCandidate { .. })));
        assert!(matches!(run(&[1.0], 0), Err(Error::NoCandidate { .. })));
    }
    let params = SamplingParams {
        top_p: f32::NAN,
        ..at_one()
    };
    assert!(matches!(
        distribution(&[1.0], &params, &history, 1),
        Err(Error::Parameter { name: "top_p", .. })
    ));
}
