//! Blocks as they are needed, against blocks for the worst case at admission: on a clock that is
//! counted, with the times of a large model on a GPU.

use super::*;

const BLOCK: usize = 16;
const CONTEXT: usize = 1024;
const SECONDS: u64 = 30;
const LIMITS: SchedulerLimits = SchedulerLimits {
    cache: CacheSizes {
        blocks: 8 * CONTEXT / BLOCK,
        block_size: BLOCK,
        sequences: 64,
        checkpoints: 0,
    },
    max_model_len: CONTEXT,
    prefill_chunk: 2048,
    max_itl: Some(Duration::from_millis(150)),
    ..super::LIMITS
};

/// A pass of either kind costs 13 ms, and 0.09 ms for each row.
pub fn cost(plan: &StepPlan) -> Duration {
    let pass = |rows: usize| match rows {
        0 => 0,
        rows => 13_000 + 90 * rows as u64,
    };
    Duration::from_micros(pass(decode_rows(plan)) + pass(prompt_tokens(plan)))
}

/// Blocks that a request may come to need.
fn worst(request: &Request) -> usize {
    let tokens = (request.prompt.len() + request.max_tokens).min(CONTEXT);
    (tokens + LIMITS.draft_rows).div_ceil(BLOCK)
}

struct Outcome {
    tokens_per_s: f64,
    together: f64,
    preempted: u64,
    /// Prompt tokens computed, by those sent.
    computed: f64,
}

/// `clients` of them always want an answer: prompts of 100 to 400 tokens, answers of 40 tokens in
/// the mean, of which nobody knows the length; `asked` is their `max_tokens`.
fn run(clients: usize, asked: usize, reserve: bool) -> Outcome {
    let mut world = World::new(1, LIMITS, clients);
    world.cost = cost;
    let (mut sent, mut steps, mut running) = (0, 0u64, 0);
    let mut next = None;
    while world.clock < Duration::from_secs(SECONDS) {
        while world.clients.len() < clients {
            let request = next.take().unwrap_or_else(|| {
                let len = world.rng.random_range(100..400);
                Request {
                    prompt: (0..len).map(|_| world.rng.random_range(1..VOCAB)).collect(),
                    max_tokens: asked,
                    priority: 0,
                    cache_salt: "".into(),
                    checkpoints: Vec::new(),
                    ..world.request()
                }
            });
            let held: usize = world
                .clients
                .iter()
                .map(|client| worst(&client.request))
                .sum();
            if reserve && held + worst(&request) > LIMITS.cache.blocks {
                next = Some(request);
                break;
            }
            sent += request.prompt.len();
            world.send(request);
        }
        world.step(false);
        steps += 1;
        running += world
            .schedule
            .running
            .iter()
            .filter(|running| !running.lost)
            .count();
    }
    let stats = world.schedule.shared.stats().clone();
    world.schedule.check_integrity().unwrap();
    Outcome {
        tokens_per_s: stats.completion_tokens as f64 / SECONDS as f64,
        together: running as f64 / steps as f64,
        preempted: stats.preempted,
        computed: stats.computed_tokens as f64 / sent as f64,
    }
}

#[test]
fn blocks_as_needed_serve_more_than_blocks_for_the_worst_case() {
    for asked in [128, CONTEXT] {
        for clients in [4, 16, 32, 64] {
            let [needed, reserved] = [false, true].map(|reserve| run(clients, asked, reserve));
            for (name, outcome) in [("as needed", &needed), ("reserved", &reserved)] {
                let Outcome {
                    tokens_per_s,
                    together,
                    preempted,
                    computed,
                } = outcome;
                eprintln!(
                    "max_tokens {asked:4}, {clients:2} clients, {name:9}: {tokens_per_s:6.1} \
                     tokens/s, {together:4.1} at once, {preempted:3} preempted, prompts \
                     computed {computed:.2} times"
                );
            }
            assert_eq!(reserved.preempted, 0);
            assert!(needed.tokens_per_s > 0.95 * reserved.tokens_per_s);
            if asked == CONTEXT && clients >= 16 {
                assert!(needed.tokens_per_s > 1.3 * reserved.tokens_per_s);
            }
        }
    }
}
