//! Where prompts of one conversation, or of one system prompt, have their beginning in common.

use crate::tokenizer::Tokenizer;

/// Begins a turn in the family's chat template.
const TURN: &str = "<|im_start|>";

/// Lengths of the beginning that other prompts are likely to share: up to the first turn behind
/// the system prompt, and up to the header of the answer. Templates change what stands in the
/// answer's turn once the conversation goes on (thoughts are left out), but not what is before it.
pub(crate) fn checkpoints(prompt: &[u32], tokenizer: &Tokenizer) -> Vec<usize> {
    let Some(turn) = tokenizer.id(TURN) else {
        return Vec::new();
    };
    let starts = prompt.iter().enumerate();
    let mut starts = starts
        .filter(|&(at, &id)| id == turn && at > 0)
        .map(|(at, _)| at);
    let first = starts.next();
    let mut ends: Vec<usize> = first.into_iter().chain(starts.next_back()).collect();
    ends.dedup();
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::tests::byte_tokenizer;

    #[test]
    fn the_system_prompt_and_the_answers_header_are_ends() {
        let tokenizer = Tokenizer::from_json(&byte_tokenizer(&[("<|im_start|>", true)])).unwrap();
        let checkpoints = |text: &str| checkpoints(&tokenizer.encode(text).unwrap(), &tokenizer);
        let turn = "<|im_start|>";
        assert!(checkpoints("no turns").is_empty());
        assert_eq!(checkpoints(&format!("{turn}ab{turn}c")), [3]);
        assert_eq!(
            checkpoints(&format!("{turn}ab{turn}c{turn}de{turn}f")),
            [3, 8]
        );
    }
}
