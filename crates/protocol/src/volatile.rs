//! Text at the head of a conversation that changes from request to request. A cached prefix ends
//! where it changes: what has no meaning to the model is left out, the rest is reported.

use crate::error::clipped;
use crate::messages::{Message, Role};

/// A first line that one client numbers anew in every request.
const BILLING_HEAD: &str = "x-anthropic-billing-header:";

/// Leaves out a billing line at the start, and reports lines with a date or time in the system
/// messages at the head.
pub(crate) fn settle(messages: &mut Vec<Message>, notices: &mut Vec<String>) {
    drop_billing_line(messages, notices);
    let head = messages.iter().take_while(|m| m.role == Role::System);
    if let Some(line) = head
        .flat_map(|m| m.content.lines())
        .find(|line| tells_time(line))
    {
        let line = clipped(&format!("{line:?}"));
        notices.push(format!(
            "the system text has a date or time, {line}; what follows cannot be cached beyond it"
        ));
    }
}

fn drop_billing_line(messages: &mut Vec<Message>, notices: &mut Vec<String>) {
    let Some(first) = messages.first_mut() else {
        return;
    };
    if first.role != Role::System || !first.content.starts_with(BILLING_HEAD) {
        return;
    }
    notices.push(format!("the line {BILLING_HEAD:?} is left out"));
    let rest = first.content.split_once('\n').map_or("", |(_, rest)| rest);
    first.content = rest.to_owned();
    if first.content.is_empty() {
        messages.remove(0);
    }
}

/// Does a line speak of today or now, with digits to it?
fn tells_time(line: &str) -> bool {
    const LONGEST: usize = 200;
    const WORDS: [&str; 4] = ["date", "time", "today", "now"];
    if line.len() > LONGEST {
        return false;
    }
    let lower = line.to_ascii_lowercase();
    let mut words = lower.split(|c: char| !c.is_ascii_alphabetic());
    words.any(|word| WORDS.contains(&word))
        && (has(&lower, "dddd-dd-dd") || has(&lower, "dd:dd") || has_year(&lower))
}

/// Does `text` have a run of this form, where `d` is a digit?
fn has(text: &str, form: &str) -> bool {
    let fits = |(byte, form): (&u8, u8)| match form {
        b'd' => byte.is_ascii_digit(),
        other => *byte == other,
    };
    let mut runs = text.as_bytes().windows(form.len());
    runs.any(|run| run.iter().zip(form.bytes()).all(fits))
}

/// A month in letters and a year.
fn has_year(lower: &str) -> bool {
    const MONTHS: [&str; 12] = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ];
    let mut words = lower.split(|c: char| !c.is_ascii_alphabetic());
    has(lower, "20dd") && words.any(|word| MONTHS.iter().any(|month| word.starts_with(month)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_times_are_recognised() {
        for line in [
            "Today's date: 2026-11-30",
            "Current date and time: 30 November 2026, 10:45",
            "It is now 10:45:03.",
            "  Today is Mon Nov 30 2026",
        ] {
            assert!(tells_time(line), "{line}");
        }
        for line in [
            "You are a helpful assistant.",
            "Run at most 10 commands at a time.",
            "Released 2026-11-30",
            "Answer with a date such as YYYY-MM-DD.",
            "An update in March 2026",
        ] {
            assert!(!tells_time(line), "{line}");
        }
    }

    #[test]
    fn only_the_head_is_looked_at() {
        let say = |role, text: &str| Message::text(role, text);
        let mut messages = vec![
            say(Role::System, "x-anthropic-billing-header: cc=1;\nBe brief."),
            say(Role::User, "Today's date: 2026-11-30"),
            say(Role::System, "Today's date: 2026-11-30"),
        ];
        let mut notices = Vec::new();
        settle(&mut messages, &mut notices);
        assert_eq!(messages[0].content, "Be brief.");
        assert_eq!(notices.len(), 1, "{notices:?}");

        let mut alone = vec![say(Role::System, "x-anthropic-billing-header: cc=1;")];
        settle(&mut alone, &mut notices);
        assert!(alone.is_empty());
    }
}
