//! Parsers of single values.

use std::time::Duration;

/// An integer of 1 or more.
pub fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// A number between `LOW` and `HIGH`, both included.
pub fn number_in<const LOW: i8, const HIGH: i8>(text: &str) -> Result<f32, String> {
    let number: f32 = text.parse().map_err(|error| format!("{error}"))?;
    if (f32::from(LOW)..=f32::from(HIGH)).contains(&number) {
        Ok(number)
    } else {
        Err(format!("must be between {LOW} and {HIGH}"))
    }
}

/// A time of more than nothing, in seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    match Duration::try_from_secs_f64(number) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("must be a number of seconds above 0".into()),
    }
}

/// A share of a whole, above 0 and at most 1.
pub fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if share > 0.0 && share <= 1.0 {
        Ok(share)
    } else {
        Err("must be above 0 and at most 1".into())
    }
}
