//! Parsers of single values.

use std::path::PathBuf;
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

/// A number of tokens or requests, 1 or more; as vLLM reads it, `32k` is 32,000 and `32K` 32,768.
pub fn count(text: &str) -> Result<usize, String> {
    const UNITS: [(char, f64); 4] = [('k', 1e3), ('K', 1024.0), ('m', 1e6), ('M', 1_048_576.0)];
    let mut parts = UNITS
        .iter()
        .filter_map(|(unit, size)| Some((text.strip_suffix(*unit)?, size)));
    let Some((number, size)) = parts.next() else {
        return positive(text);
    };
    let number: f64 = number.parse().map_err(|error| format!("{error}"))?;
    match (number * size).round() {
        whole if (1.0..=1e15).contains(&whole) => Ok(whole as usize),
        _ => Err("must be at least 1, and no more than 1e15".into()),
    }
}

/// A number of tokens of a sequence.
pub fn length(text: &str) -> Result<usize, String> {
    match text {
        "auto" | "-1" => Err(
            "must be a number of tokens; `volley plan` tells how many sequences of a length fit"
                .into(),
        ),
        number => count(number),
    }
}

/// A seed; none is a random one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub Option<u64>);

/// A seed of 64 bits, with or without a sign: -1 is none, as in requests.
pub fn seed(text: &str) -> Result<Seed, String> {
    if text == "-1" {
        return Ok(Seed(None));
    }
    let unsigned = text.parse::<u64>().ok();
    let seed = unsigned.or_else(|| Some(text.parse::<i64>().ok()? as u64));
    let wrong = || "must be an integer of 64 bits".to_owned();
    seed.map(|seed| Seed(Some(seed))).ok_or_else(wrong)
}

/// A time of more than nothing, in seconds; up to 30 years, so that a moment can be told from it.
pub fn seconds(text: &str) -> Result<Duration, String> {
    const MOST: Duration = Duration::from_secs(1_000_000_000);
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    match Duration::try_from_secs_f64(number) {
        Ok(time) if !time.is_zero() && time <= MOST => Ok(time),
        _ => Err("must be a number of seconds above 0, and no more than 1e9".into()),
    }
}

/// A file to be written at the end of long work: its folder is looked for at the start.
pub fn new_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if path.is_dir() {
        return Err("is a folder".into());
    }
    match folder {
        Some(folder) if !folder.is_dir() => Err(format!("there is no folder {}", folder.display())),
        _ => Ok(path),
    }
}

/// So many a second.
pub fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|error| format!("{error}"))?;
    match (1e-6..=1e6).contains(&rate) {
        true => Ok(rate),
        false => Err("must be between 1e-6 and 1e6".into()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_the_units_of_vllm() {
        for (text, number) in [
            ("7", 7),
            ("32k", 32_000),
            ("32K", 32_768),
            ("1.5k", 1500),
            ("2M", 2 << 20),
        ] {
            assert_eq!(count(text), Ok(number), "{text}");
        }
        for text in [
            "", "0", "-1", "k", "0k", "1e300k", "NaNk", "2kk", "4 K", "auto",
        ] {
            assert!(count(text).is_err(), "{text}");
        }
        assert_eq!(length("32K"), count("32K"));
        for text in ["auto", "-1"] {
            assert!(length(text).unwrap_err().contains("volley plan"));
        }
    }

    #[test]
    fn seeds_have_64_bits() {
        for (text, bits) in [
            ("-1", None),
            ("0", Some(0)),
            ("-2", Some(u64::MAX - 1)),
            ("18446744073709551615", Some(u64::MAX)),
            ("-9223372036854775808", Some(1 << 63)),
        ] {
            assert_eq!(seed(text), Ok(Seed(bits)), "{text}");
        }
        for text in [
            "",
            "x",
            "1.5",
            "18446744073709551616",
            "-9223372036854775809",
        ] {
            assert!(seed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn files_have_a_folder() {
        for text in ["x.json", "./x.json", "/x.json", "/tmp/../x.json"] {
            assert_eq!(new_file(text), Ok(PathBuf::from(text)));
        }
        for text in ["/no/such/x.json", "no-such/x.json", "/tmp", "/", "."] {
            assert!(new_file(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_and_rates_can_be_kept() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "1e-300", "1e10", "1e300", "inf", "NaN", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert_eq!(rate("0.5"), Ok(0.5));
        for text in ["0", "-1", "1e-300", "inf", "NaN", "x"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
