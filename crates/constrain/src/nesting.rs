use crate::Error;

/// Deepest nesting of brackets in a regular expression or grammar. Its compiler is recursive.
const LIMIT: usize = 100;

/// Refuses text with brackets nested too deep. Brackets that are only quoted count as well.
pub(crate) fn check(text: &str) -> Result<(), Error> {
    let mut depth = 0_usize;
    let mut deepest = 0;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    match deepest > LIMIT {
        true => Err(Error::Nesting {
            depth: deepest,
            limit: LIMIT,
        }),
        false => Ok(()),
    }
}
