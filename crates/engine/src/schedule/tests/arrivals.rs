//! Times to the first token, on a clock that is counted: many prompts at once, and short ones beside
//! a long one.

use super::*;

const LIMITS: SchedulerLimits = SchedulerLimits {
    cache: CacheSizes {
        blocks: 4000,
        block_size: 16,
        sequences: 64,
        checkpoints: 0,
    },
    max_model_len: 20_000,
    prefill_chunk: 2048,
    max_itl: Some(Duration::from_millis(150)),
    ..super::LIMITS
};

/// A prompt of so many random tokens, to be answered by at most `tokens`.
fn request(world: &mut World, prompt: usize, tokens: usize) -> Request {
    let random = |_| world.rng.random_range(1..VOCAB);
    Request {
        stop_ids: Vec::new(),
        ..Request::new((0..prompt).map(random).collect(), tokens)
    }
}

/// Seconds until the first token of each prompt, in their order, all sent at once.
fn at_once(prompts: &[usize], tokens: usize) -> Vec<f64> {
    let mut world = World::new(1, LIMITS, prompts.len());
    world.cost = memory::cost;
    for &prompt in prompts {
        let request = request(&mut world, prompt, tokens);
        world.send(request);
    }
    while !world.clients.is_empty() {
        world.step(false);
    }
    let first = |&prompt: &usize| {
        let mut firsts = world.first_tokens.iter();
        let (_, waited) = firsts.find(|first| first.0 == prompt).unwrap();
        waited.as_secs_f64()
    };
    prompts.iter().map(first).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Lengths that tell prompts apart.
fn about(len: usize, count: usize) -> Vec<usize> {
    (0..count).map(|index| len + index).collect()
}

#[test]
fn prompts_that_come_at_once_are_read_one_after_the_other() {
    let prompts = about(480, 64);
    let alone = at_once(&prompts[..1], 48)[0];
    let firsts = at_once(&prompts, 48);
    let last = firsts.iter().copied().fold(0.0, f64::max);
    eprintln!(
        "alone {alone:.2} s; of 64: mean {:.2} s, last {last:.2} s",
        mean(&firsts)
    );
    assert!(firsts[0] < 4.0 * alone);
    assert!(mean(&firsts) < 0.6 * last, "{firsts:?}");
}

#[test]
fn a_long_prompt_and_short_ones_make_each_other_twice_as_late_at_most() {
    let short = about(200, 40);
    let among = at_once(&short, 20);
    let alone = at_once(&[16_000], 20)[0];
    let [ahead, behind] = [0, 20].map(|place| {
        let mut all = short.clone();
        all.insert(place, 16_000);
        let mut firsts = at_once(&all, 20);
        let long = firsts.remove(place);
        (long, mean(&firsts))
    });
    eprintln!(
        "40 short ones {:.2} s in the mean, a long one {alone:.2} s; together {ahead:.2?}, {behind:.2?}",
        mean(&among)
    );
    for (long, short) in [ahead, behind] {
        assert!(short < 2.2 * mean(&among), "short ones: {short} s");
        assert!(long < 2.2 * alone, "the long one: {long} s");
    }
}

/// Short prompts that never stop coming.
#[test]
fn a_long_prompt_is_read_though_short_ones_keep_coming() {
    let alone = at_once(&[16_000], 20)[0];
    let mut world = World::new(1, LIMITS, 64);
    world.cost = memory::cost;
    let long = request(&mut world, 16_000, 20);
    let mut short = 100;
    world.send(long);
    while !world.first_tokens.iter().any(|first| first.0 == 16_000) {
        while world.clients.len() < 32 {
            short += 1;
            let request = request(&mut world, short, 4);
            world.send(request);
        }
        world.step(false);
        assert!(
            world.clock.as_secs_f64() < 3.0 * alone,
            "beside {short} short ones"
        );
    }
    assert!(short > 200, "{short}");
}
