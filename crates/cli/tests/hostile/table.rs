//! Which test holds which case of the bug bank and which negative test: tables of numbers, and a check
//! that each of the tests is there.

use std::collections::HashSet;
use std::path::Path;

use crate::requests::rows;

const CALLS: &str = "crates/protocol/tests/surfaces/bugs/calls.rs";
const REASONING: &str = "crates/protocol/tests/surfaces/bugs/reasoning.rs";
const PROMPTS: &str = "crates/protocol/tests/surfaces/bugs/prompts.rs";
const LIMITS: &str = "crates/protocol/tests/surfaces/bugs/limits.rs";
const CONSTRAINTS: &str = "crates/protocol/tests/surfaces/bugs/constraints.rs";
const STREAMS: &str = "crates/protocol/tests/surfaces/bugs/streams.rs";
const TEMPLATE: &str = "crates/protocol/tests/template.rs";
const ACCESS: &str = "crates/cli/tests/access.rs";
const CHAT: &str = "crates/cli/tests/chat.rs";
const LEAVERS: &str = "crates/cli/tests/leavers.rs";
const REPEATS: &str = "crates/cli/tests/repeats.rs";
const LOAD: &str = "crates/cli/tests/load.rs";
const CONTROL: &str = "crates/engine/tests/control.rs";
const EQUALITY: &str = "crates/engine/tests/equality.rs";
const FAULTS: &str = "crates/engine/tests/faults.rs";
const MALFORMED: &str = "crates/cli/tests/malformed.rs";
const COMMANDS: &str = "crates/cli/tests/commands.rs";
const FIELDS: &str = "crates/cli/tests/hostile/fields.rs";
const TEXTS: &str = "crates/cli/tests/hostile/texts.rs";
const FORMATS: &str = "crates/cli/tests/hostile/formats.rs";
const ROWS: &str = "crates/cli/tests/hostile/requests.rs";
const SURROUNDINGS: &str = "crates/cli/tests/hostile/surroundings.rs";
const LOADING: &str = "crates/server/src/loading.rs";
const CACHE: &str = "crates/engine/tests/cache.rs";
const HANDLE: &str = "crates/engine/src/handle.rs";
const RANDOM: &str = "crates/engine/tests/random.rs";
const THIS: &str = "crates/cli/tests/hostile/table.rs";
const METHODS: &str = "crates/engine/tests/methods.rs";

/// Number in the bug bank, file, test. Numbers that are missing from 1 to 98 belong to no case.
const CASES: &[(u32, &str, &str)] = &[
    (1, CALLS, "b01_an_object_behind_any_of_is_an_object"),
    (3, CALLS, "b03_booleans_behind_a_type_list"),
    (4, CALLS, "b04_strings_that_look_like_numbers_stay_strings"),
    (5, CALLS, "b05_white_space_in_strings_is_data"),
    (7, CALLS, "b07_the_opening_tag_is_missing"),
    (9, CALLS, "b09_prose_about_the_tag_is_content_and_flows"),
    (10, CALLS, "b10_a_tag_split_across_pieces"),
    (
        11,
        CALLS,
        "b11_b12_a_call_in_one_piece_and_its_closing_brace",
    ),
    (
        12,
        CALLS,
        "b11_b12_a_call_in_one_piece_and_its_closing_brace",
    ),
    (14, CALLS, "b14_a_function_without_parameters"),
    (15, CALLS, "b15_the_token_limit_inside_a_call"),
    (18, CALLS, "b18_a_call_inside_thoughts_that_never_close"),
    (
        21,
        CALLS,
        "b21_a_long_argument_streams_while_it_is_generated",
    ),
    (22, CALLS, "b22_tool_choice_none_returns_no_call"),
    (
        24,
        CALLS,
        "b24_a_named_choice_whose_thoughts_eat_everything",
    ),
    (25, CALLS, "b25_an_untyped_parameter_is_never_evaluated"),
    (27, CALLS, "b27_name_and_id_come_once"),
    (
        28,
        STREAMS,
        "b28_an_engine_failure_is_one_error_event_and_no_finish",
    ),
    (30, CALLS, "b30_parallel_calls_have_their_own_index"),
    (31, REASONING, "b31_truncated_thinking_is_still_thinking"),
    (32, REASONING, "b32_without_thinking_the_answer_is_content"),
    (34, REASONING, "b34_literal_tags_in_the_answer"),
    (
        36,
        REASONING,
        "b36_the_forced_close_of_a_budget_stays_in_the_thoughts",
    ),
    (37, PROMPTS, "b37_ways_to_say_do_not_think"),
    (
        38,
        REASONING,
        "b38_thoughts_in_the_history_are_read_under_every_name",
    ),
    (39, REASONING, "b39_thoughts_go_out_under_both_names"),
    (40, PROMPTS, "b40_system_messages_that_are_not_first"),
    (
        41,
        PROMPTS,
        "b41_b44_every_surface_renders_a_tool_loop_alike",
    ),
    (43, PROMPTS, "b43_without_a_user_message"),
    (
        44,
        PROMPTS,
        "b41_b44_every_surface_renders_a_tool_loop_alike",
    ),
    (
        45,
        PROMPTS,
        "b45_an_answer_at_the_end_is_followed_by_another_or_goes_on",
    ),
    (
        47,
        TEMPLATE,
        "b47_control_tokens_of_messages_are_cut_and_those_of_the_template_are_not",
    ),
    (48, LIMITS, "b48_reserved_names_of_the_renderer"),
    (49, PROMPTS, "b49_empty_tools_are_no_tools"),
    (50, TEMPLATE, "b50_prompts_of_a_tool_loop_extend_each_other"),
    (51, REASONING, "b51_a_stop_string_split_over_pieces"),
    (53, REASONING, "b53_a_stop_word_inside_the_thoughts"),
    (55, REASONING, "b55_characters_split_over_tokens"),
    (59, REASONING, "b59_with_a_schema_the_json_is_content"),
    (60, CONTROL, "texts_of_random_schemas_validate"),
    (
        62,
        CONSTRAINTS,
        "b62_bad_schemas_and_grammars_fail_their_request_only",
    ),
    (63, CONSTRAINTS, "b63_degenerate_switches"),
    (65, REPEATS, "b65_a_b_a"),
    (66, REPEATS, "b66_b71_repeated_requests_agree"),
    (67, REPEATS, "b67_the_second_turn_knows_the_first"),
    (70, PROMPTS, "b70_a_volatile_head_does_not_reach_the_prompt"),
    (71, STREAMS, "b71_b84_usage_is_the_same_everywhere"),
    (72, CHAT, "speculation_and_ranks_do_not_change_the_text"),
    (74, EQUALITY, "sampled_text_does_not_depend_on_speculation"),
    (75, METHODS, "every_method_gives_the_text_of_none"),
    (76, LOAD, "sixteen_at_once_are_all_answered_alike"),
    (77, LIMITS, "b77_penalties_out_of_range"),
    (81, LEAVERS, "b81_clients_that_leave_free_everything"),
    (83, LEAVERS, "b83_hard_closes_hurt_nobody_else"),
    (84, STREAMS, "b84_continuous_usage_is_in_every_chunk"),
    (85, LIMITS, "b85_limits_of_the_answer"),
    (86, LIMITS, "b86_a_prompt_larger_than_the_context"),
    (87, LIMITS, "b87_fan_out_is_bounded"),
    (88, LIMITS, "b88_token_ids_out_of_range"),
    (89, LIMITS, "b89_b90_bodies_that_are_no_object_or_no_text"),
    (90, LIMITS, "b89_b90_bodies_that_are_no_object_or_no_text"),
    (91, ACCESS, "b91_bodies_of_several_megabytes"),
    (92, LOAD, "b92_health_tells_a_step_that_does_not_end"),
    (93, STREAMS, "b93_thinking_deltas_are_in_a_thinking_block"),
    (94, PROMPTS, "b94_inline_system_messages_and_unknown_fields"),
    (96, PROMPTS, "b96_tool_kinds_other_than_function"),
    (98, STREAMS, "b98_a_tool_call_in_a_responses_stream"),
];

/// Number of the negative test, file, test.
const NEGATIVE: &[(u32, &str, &str)] = &[
    (1, ACCESS, "slow_and_oversized_heads_and_bodies_are_cut_off"),
    (2, ACCESS, "slow_and_oversized_heads_and_bodies_are_cut_off"),
    (3, ACCESS, "slow_and_oversized_heads_and_bodies_are_cut_off"),
    (4, ACCESS, "slow_and_oversized_heads_and_bodies_are_cut_off"),
    (5, ACCESS, "odd_paths_lengths_and_upgrades"),
    (6, ACCESS, "b91_bodies_of_several_megabytes"),
    (7, ACCESS, "messages_and_packed_bodies_have_limits"),
    (8, ACCESS, "a_connection_is_used_again_after_errors"),
    (9, ACCESS, "slow_and_oversized_heads_and_bodies_are_cut_off"),
    (10, ACCESS, "odd_paths_lengths_and_upgrades"),
    (11, ACCESS, "odd_paths_lengths_and_upgrades"),
    (12, LEAVERS, "a_half_closed_connection_counts_as_left"),
    (13, LEAVERS, "a_client_that_does_not_read_slows_nobody"),
    (14, TEXTS, "texts_that_are_odd_or_forged"),
    (15, FIELDS, "numbers_at_and_beyond_their_bounds"),
    (16, ROWS, "requests_leave_the_server_as_it_was"),
    (17, TEXTS, "texts_that_are_odd_or_forged"),
    (18, ACCESS, "messages_and_packed_bodies_have_limits"),
    (19, MALFORMED, "bodies_with_wrong_fields"),
    (20, FIELDS, "numbers_at_and_beyond_their_bounds"),
    (
        21,
        FIELDS,
        "fields_of_every_surface_that_would_cost_too_much",
    ),
    (22, FIELDS, "numbers_at_and_beyond_their_bounds"),
    (
        23,
        FIELDS,
        "fields_of_every_surface_that_would_cost_too_much",
    ),
    (
        24,
        FIELDS,
        "fields_of_every_surface_that_would_cost_too_much",
    ),
    (
        25,
        FIELDS,
        "fields_of_every_surface_that_would_cost_too_much",
    ),
    (26, FIELDS, "numbers_at_and_beyond_their_bounds"),
    (27, FIELDS, "numbers_at_and_beyond_their_bounds"),
    (
        28,
        FIELDS,
        "fields_of_every_surface_that_would_cost_too_much",
    ),
    (29, ROWS, "requests_leave_the_server_as_it_was"),
    (30, ROWS, "requests_leave_the_server_as_it_was"),
    (31, TEXTS, "nothing_is_fetched"),
    (32, TEXTS, "texts_that_are_odd_or_forged"),
    (33, ROWS, "requests_leave_the_server_as_it_was"),
    (34, ROWS, "requests_leave_the_server_as_it_was"),
    (35, ROWS, "requests_leave_the_server_as_it_was"),
    (
        36,
        FIELDS,
        "fields_of_every_surface_that_would_cost_too_much",
    ),
    (37, ROWS, "requests_leave_the_server_as_it_was"),
    (38, ROWS, "requests_leave_the_server_as_it_was"),
    (39, ROWS, "requests_leave_the_server_as_it_was"),
    (40, FORMATS, "a_slow_rule_holds_up_nobody"),
    (41, LOAD, "a_full_queue_refuses_with_a_time_to_retry"),
    (42, LEAVERS, "idle_connections_slow_nobody"),
    (43, RANDOM, "short_prompts_pass_a_long_one"),
    (44, LEAVERS, "b81_clients_that_leave_free_everything"),
    (45, CHAT, "salts_keep_prompts_apart"),
    (46, CACHE, "requests_without_blocks_wait_or_compute_again"),
    (
        47,
        FAULTS,
        "a_failed_step_fails_its_request_and_the_next_one_works",
    ),
    (
        48,
        SURROUNDINGS,
        "a_log_that_nobody_reads_and_a_folder_that_is_gone",
    ),
    (49, THIS, "times_are_taken_from_a_clock_that_does_not_jump"),
    (50, LOAD, "a_second_signal_cuts_answers_off_with_an_error"),
    (
        51,
        FAULTS,
        "a_lost_rank_ends_the_engine_with_an_error_for_all",
    ),
    (52, HANDLE, "only_a_step_can_stall"),
    (53, LOADING, "requests_are_refused_until_the_model_is_there"),
    (
        54,
        COMMANDS,
        "broken_models_and_taken_ports_end_with_1_and_one_line",
    ),
    (
        55,
        FAULTS,
        "a_lost_rank_ends_the_engine_with_an_error_for_all",
    ),
];

/// Cases that no single request shows: clients that leave, resets, an engine that stands still. The
/// first two have the canary in their tests.
const NO_REQUEST: &[u32] = &[81, 83, 92];

fn source(file: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(file)).unwrap()
}

#[test]
fn every_case_has_its_test() {
    for (table, count) in [(CASES, 67), (NEGATIVE, 55)] {
        for (number, file, test) in table {
            let test = format!("fn {test}(");
            assert!(
                source(file).contains(&test),
                "{number}: {test} is not in {file}"
            );
        }
        assert!(table.is_sorted());
        assert_eq!(table.len(), count);
    }
}

#[test]
fn every_case_has_its_request() {
    let rows: HashSet<String> = rows().into_iter().map(|row| row.case).collect();
    for (number, ..) in CASES {
        let has_row = rows.contains(&format!("B{number:02}"));
        assert_ne!(has_row, NO_REQUEST.contains(number), "B{number:02}");
    }
    let rows_of_none = NEGATIVE
        .iter()
        .filter(|(number, file, _)| *file == ROWS && !rows.contains(&format!("N{number:02}")));
    assert_eq!(rows_of_none.count(), 0);
}

/// N49: the wall clock is told, and nothing waits by it.
#[test]
fn times_are_taken_from_a_clock_that_does_not_jump() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut readers = Vec::new();
    for name in ["server", "engine", "speculate", "cache", "protocol"] {
        let mut folders = vec![root.join(name).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if std::fs::read_to_string(&path)
                    .unwrap()
                    .contains("SystemTime")
                {
                    readers.push(path.file_name().unwrap().to_owned());
                }
            }
        }
    }
    assert_eq!(readers, ["app.rs"], "which stamps what is created");
}
