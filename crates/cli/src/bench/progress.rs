//! A progress bar on stderr.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `len` of `what`; hidden when stderr is not a terminal.
pub fn bar(len: u64, what: &'static str) -> ProgressBar {
    let template = format!("{{bar:40}} {{pos}}/{{len}} {what}, {{elapsed}} of {{duration}}");
    let style = ProgressStyle::with_template(&template)
        .expect("the template of the progress bar is sound: this is a bug");
    ProgressBar::new(len).with_style(style)
}

/// As [`bar`], where nobody knows how many there are; the message says which is done.
pub fn counter(what: &'static str) -> ProgressBar {
    let template = format!("{{spinner}} {{pos}} {what}, {{elapsed}}: {{msg}}");
    let style = ProgressStyle::with_template(&template)
        .expect("the template of the progress bar is sound: this is a bug");
    ProgressBar::no_length().with_style(style)
}
