//! Prometheus's text format 0.0.4. What vLLM counts too has vLLM's name, so that its dashboards
//! work; the rest begins with `volley:`.

use std::fmt::{Display, Write};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use volley_engine::{EngineInfo, EngineStats};
use volley_speculate::Method;

use super::histogram::Histogram;
use super::{Ended, Metrics};

/// The page of `/metrics`.
pub fn exposition(
    metrics: &Metrics,
    stats: &EngineStats,
    info: &EngineInfo,
    model: &str,
    alive: bool,
) -> String {
    let mut page = Page {
        text: String::new(),
        model: format!("model_name=\"{}\"", escaped(model)),
    };
    page.engine(stats, info, alive);
    page.requests(metrics);
    page.times(metrics);
    page.text
}

struct Page {
    text: String,
    model: String,
}

impl Page {
    fn engine(&mut self, stats: &EngineStats, info: &EngineInfo, alive: bool) {
        self.gauge(
            "vllm:num_requests_running",
            "Requests running",
            stats.running.saturating_sub(stats.paused),
        );
        self.gauge(
            "vllm:num_requests_waiting",
            "Requests waiting for their turn, or for room to go on",
            stats.waiting + stats.paused,
        );
        let used = stats.total_blocks.saturating_sub(stats.free_blocks);
        let share = used as f64 / stats.total_blocks.max(1) as f64;
        self.gauge(
            "vllm:kv_cache_usage_perc",
            "Share of the cache blocks in use; 1 is all",
            share,
        );
        self.gauge("volley:cache_blocks", "Cache blocks", stats.total_blocks);
        self.gauge(
            "volley:cache_blocks_free",
            "Cache blocks that no running request holds",
            stats.free_blocks,
        );
        self.gauge(
            "volley:engine_alive",
            "1 while the engine runs and is not stuck in a step",
            u8::from(alive),
        );
        self.gauge(
            "volley:max_model_len",
            "Longest sequence in tokens",
            info.max_model_len,
        );
        let caching = if info.prefix_cache { "True" } else { "False" };
        let sizes = format!(
            "block_size=\"{}\",num_gpu_blocks=\"{}\",enable_prefix_caching=\"{caching}\"",
            info.block_size, stats.total_blocks
        );
        let name = "vllm:cache_config_info";
        self.head(name, "Sizes of the cache", "gauge");
        self.sample(name, &sizes, 1);
        self.prompts(stats);
        self.counter(
            "vllm:generation_tokens_total",
            "Tokens generated",
            stats.completion_tokens,
        );
        self.counter(
            "vllm:num_preemptions_total",
            "How often a running request lost its blocks to another",
            stats.preempted,
        );
        self.gauge(
            "volley:cached_blocks",
            "Cache blocks of kept prefixes",
            stats.cached_blocks,
        );
        self.gauge("volley:checkpoints", "Kept prefixes", stats.checkpoints);
        self.counter(
            "volley:gaps_total",
            "Gaps between updates of running answers",
            stats.gaps,
        );
        self.counter(
            "volley:late_gaps_total",
            "Of these, longer than --max-itl-ms",
            stats.late_gaps,
        );
        self.counter(
            "volley:steps_total",
            "Decode steps over all requests",
            stats.steps,
        );
        self.counter(
            "volley:cancelled_total",
            "Requests whose client went away",
            stats.cancelled,
        );
        const CANCELLED: &str = "volley:cancelled_by_phase_total";
        self.head(CANCELLED, "The same by what they were in", "counter");
        for (phase, count) in [
            ("waiting", stats.cancelled_waiting),
            ("prefill", stats.cancelled_prefill),
            ("decode", stats.cancelled_decode),
        ] {
            self.sample(CANCELLED, &format!("phase=\"{phase}\""), count);
        }
        self.counter(
            "volley:failed_total",
            "Requests that the engine failed on",
            stats.failed,
        );
        self.drafts(stats);
    }

    /// Those of all prompts that have been answered to, and of what was done for them.
    fn prompts(&mut self, stats: &EngineStats) {
        let (all, cached) = (stats.prompt_tokens, stats.cached_prompt_tokens);
        const BY_SOURCE: &str = "vllm:prompt_tokens_by_source_total";
        for (name, help, count) in [
            (
                "vllm:prompt_tokens_total",
                "Prompt tokens of requests that have their first token",
                all,
            ),
            (
                "vllm:prompt_tokens_cached_total",
                "Of these, taken from the prefix cache",
                cached,
            ),
            (
                "volley:computed_tokens_total",
                "Tokens of prompts computed so far, those computed again included",
                stats.computed_tokens,
            ),
            (
                "vllm:prefix_cache_queries_total",
                "Prompt tokens looked up in the prefix cache",
                stats.queried_tokens,
            ),
            (
                "vllm:prefix_cache_hits_total",
                "Of these, found",
                stats.cached_tokens,
            ),
        ] {
            self.counter(name, help, count);
        }
        self.head(
            BY_SOURCE,
            "The prompt tokens by where they came from",
            "counter",
        );
        for (source, count) in [
            ("local_compute", all - cached),
            ("local_cache_hit", cached),
            ("external_kv_transfer", 0),
        ] {
            self.sample(BY_SOURCE, &format!("source=\"{source}\""), count);
        }
    }

    fn drafts(&mut self, stats: &EngineStats) {
        let stats = &stats.speculation;
        self.counter(
            "vllm:spec_decode_num_drafts_total",
            "Steps that verified drafts",
            stats.drafts,
        );
        self.counter(
            "vllm:spec_decode_num_draft_tokens_total",
            "Drafts verified",
            stats.draft_tokens,
        );
        self.counter(
            "vllm:spec_decode_num_accepted_tokens_total",
            "Drafts accepted",
            stats.accepted_tokens,
        );
        const METHODS: &str = "volley:decode_steps_by_method_total";
        self.head(METHODS, "Decode steps by method of drafting", "counter");
        for method in Method::ALL
            .into_iter()
            .filter(|&method| method != Method::Auto)
        {
            let steps = stats.methods.of(method);
            self.sample(METHODS, &format!("method=\"{method}\""), steps);
        }
        for (name, help, counts) in [
            (
                "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                "Drafts accepted by their distance from the anchor",
                &stats.accepted,
            ),
            (
                "volley:spec_decode_num_draft_tokens_per_pos_total",
                "Drafts verified by their distance from the anchor",
                &stats.drafted,
            ),
        ] {
            self.head(name, help, "counter");
            for (position, count) in counts.iter().enumerate() {
                self.sample(name, &format!("position=\"{position}\""), count);
            }
        }
    }

    fn requests(&mut self, metrics: &Metrics) {
        let name = "vllm:request_success_total";
        self.head(name, "Choices that ended, by how", "counter");
        for (how, reason) in Ended::ALL {
            let count = metrics.ended[how as usize].load(Ordering::Relaxed);
            self.sample(name, &format!("finished_reason=\"{reason}\""), count);
        }
        for (name, help, count) in [
            (
                "volley:reasoning_tokens_total",
                "Tokens of thoughts",
                &metrics.reasoning_tokens,
            ),
            (
                "volley:tool_calls_total",
                "Complete tool calls",
                &metrics.tool_calls,
            ),
        ] {
            self.counter(name, help, count.load(Ordering::Relaxed));
        }
        let name = "volley:http_responses_total";
        self.head(name, "Responses by path, method and status", "counter");
        let responses = metrics.responses.lock();
        let responses = responses.unwrap_or_else(PoisonError::into_inner).clone();
        for ((path, method, status), count) in responses {
            let labels = format!(
                "path=\"{}\",method=\"{}\",status=\"{status}\"",
                escaped(&path),
                escaped(&method)
            );
            self.sample(name, &labels, count);
        }
    }

    fn times(&mut self, metrics: &Metrics) {
        for (name, help, histogram) in [
            (
                "vllm:time_to_first_token_seconds",
                "Time from a request to the first token of a choice",
                &metrics.first_token_s,
            ),
            (
                "vllm:inter_token_latency_seconds",
                "Time between steps of a choice that brought tokens, however many",
                &metrics.between_steps_s,
            ),
            (
                "vllm:request_time_per_output_token_seconds",
                "Mean time per token of a choice behind its first",
                &metrics.per_token_s,
            ),
            (
                "vllm:e2e_request_latency_seconds",
                "Time from a request to the last token of a choice",
                &metrics.whole_s,
            ),
            (
                "vllm:request_queue_time_seconds",
                "Time that choices waited for their turn",
                &metrics.queue_s,
            ),
            (
                "vllm:request_prefill_time_seconds",
                "Time from the turn to the first token",
                &metrics.prefill_s,
            ),
            (
                "vllm:request_decode_time_seconds",
                "Time from the first token to the last",
                &metrics.decode_s,
            ),
            (
                "vllm:request_inference_time_seconds",
                "Time from the turn to the last token",
                &metrics.inference_s,
            ),
            (
                "vllm:request_prompt_tokens",
                "Prompt tokens per choice",
                &metrics.prompt_tokens,
            ),
            (
                "vllm:request_generation_tokens",
                "Generated tokens per choice",
                &metrics.completion_tokens,
            ),
            (
                "vllm:request_params_max_tokens",
                "Most tokens that a choice might have had",
                &metrics.max_tokens,
            ),
            (
                "vllm:request_params_n",
                "Choices per request",
                &metrics.choices,
            ),
            (
                "vllm:request_max_num_generation_tokens",
                "Generated tokens of a request's longest choice",
                &metrics.longest_choice_tokens,
            ),
            (
                "volley:acceptance_length",
                "Tokens per step of a choice, bonus token included",
                &metrics.acceptance_length,
            ),
        ] {
            self.histogram(name, help, histogram);
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, help, "histogram");
        let snapshot = histogram.snapshot();
        for (bound, count) in &snapshot.buckets {
            let bound = match bound.is_finite() {
                true => bound.to_string(),
                false => "+Inf".to_owned(),
            };
            self.sample(&format!("{name}_bucket"), &format!("le=\"{bound}\""), count);
        }
        self.sample(&format!("{name}_sum"), "", snapshot.sum);
        self.sample(&format!("{name}_count"), "", snapshot.count());
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help, "gauge");
        self.sample(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help, "counter");
        self.sample(name, "", value);
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a string does not fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let comma = if labels.is_empty() { "" } else { "," };
        let model = &self.model;
        let _ = writeln!(self.text, "{name}{{{model}{comma}{labels}}} {value}");
    }
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use volley_engine::{DraftStats, Usage};

    use super::*;
    use crate::answer::ChoiceTotals;

    #[test]
    fn counts_come_out_under_their_names() {
        let metrics = Metrics::new();
        metrics.first_token(Duration::from_millis(20));
        metrics.more_tokens(Duration::from_millis(40));
        metrics.ended(Ended::Length, 1);
        metrics.ended(Ended::Abort, 3);
        let engine = Usage {
            completion_tokens: 5,
            queue_ms: 7.0,
            prefill_ms: 13.0,
            decode_ms: 40.0,
            ..Usage::default()
        };
        let choice = || ChoiceTotals {
            prompt_tokens: 30,
            tokens: 5,
            reasoning_tokens: 2,
            max_tokens: 34,
            engine: Some(&engine),
        };
        metrics.choice(&choice(), Duration::from_millis(60));
        metrics.answered([choice(), choice()].into_iter());
        metrics.response("/v1/models", "GET", 200);
        let stats = EngineStats {
            running: 3,
            paused: 1,
            waiting: 4,
            speculation: DraftStats {
                drafts: 4,
                draft_tokens: 7,
                accepted_tokens: 3,
                drafted: vec![4, 3],
                accepted: vec![2, 1],
                ..DraftStats::default()
            },
            prompt_tokens: 50,
            cached_prompt_tokens: 20,
            computed_tokens: 33,
            queried_tokens: 60,
            cached_tokens: 25,
            free_blocks: 30,
            total_blocks: 40,
            ..EngineStats::default()
        };
        let info = EngineInfo {
            max_model_len: 64,
            block_size: 16,
            prefix_cache: true,
            vocab_size: 8,
            method: Method::Dflash,
            methods: vec![Method::None, Method::Dflash],
            max_drafts: 15,
            tree_budget: 0,
        };
        let text = exposition(&metrics, &stats, &info, "a\"b", true);
        for line in [
            "vllm:num_requests_running{model_name=\"a\\\"b\"} 2",
            "vllm:num_requests_waiting{model_name=\"a\\\"b\"} 5",
            "vllm:kv_cache_usage_perc{model_name=\"a\\\"b\"} 0.25",
            "vllm:spec_decode_num_drafts_total{model_name=\"a\\\"b\"} 4",
            "vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name=\"a\\\"b\",position=\"1\"} 1",
            "vllm:request_success_total{model_name=\"a\\\"b\",finished_reason=\"length\"} 1",
            "vllm:time_to_first_token_seconds_bucket{model_name=\"a\\\"b\",le=\"0.025\"} 1",
            "vllm:time_to_first_token_seconds_bucket{model_name=\"a\\\"b\",le=\"0.01\"} 0",
            "vllm:inter_token_latency_seconds_count{model_name=\"a\\\"b\"} 1",
            "vllm:inter_token_latency_seconds_bucket{model_name=\"a\\\"b\",le=\"0.025\"} 0",
            "vllm:inter_token_latency_seconds_bucket{model_name=\"a\\\"b\",le=\"0.05\"} 1",
            "vllm:inter_token_latency_seconds_bucket{model_name=\"a\\\"b\",le=\"+Inf\"} 1",
            "vllm:request_time_per_output_token_seconds_sum{model_name=\"a\\\"b\"} 0.01",
            "vllm:request_queue_time_seconds_sum{model_name=\"a\\\"b\"} 0.007",
            "vllm:request_inference_time_seconds_sum{model_name=\"a\\\"b\"} 0.053",
            "vllm:request_params_max_tokens_sum{model_name=\"a\\\"b\"} 34",
            "vllm:request_params_n_sum{model_name=\"a\\\"b\"} 2",
            "vllm:request_max_num_generation_tokens_sum{model_name=\"a\\\"b\"} 5",
            "vllm:request_success_total{model_name=\"a\\\"b\",finished_reason=\"abort\"} 3",
            "vllm:prompt_tokens_total{model_name=\"a\\\"b\"} 50",
            "vllm:prompt_tokens_cached_total{model_name=\"a\\\"b\"} 20",
            "vllm:prompt_tokens_by_source_total{model_name=\"a\\\"b\",source=\"local_compute\"} 30",
            "vllm:prompt_tokens_by_source_total{model_name=\"a\\\"b\",source=\"local_cache_hit\"} 20",
            "vllm:prefix_cache_queries_total{model_name=\"a\\\"b\"} 60",
            "vllm:prefix_cache_hits_total{model_name=\"a\\\"b\"} 25",
            "volley:computed_tokens_total{model_name=\"a\\\"b\"} 33",
            "vllm:cache_config_info{model_name=\"a\\\"b\",block_size=\"16\",num_gpu_blocks=\"40\",enable_prefix_caching=\"True\"} 1",
            "volley:http_responses_total{model_name=\"a\\\"b\",path=\"/v1/models\",method=\"GET\",status=\"200\"} 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(names.len(), unique.len(), "each name has one head");
    }
}
