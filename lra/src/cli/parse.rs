//! Parsers for the values of flags.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use results::tables::{self, TABLES, TableKind};

use crate::runtime::most_threads;

/// The largest seed: settings are kept as TOML, and this is the largest integer of TOML.
const LARGEST_SEED: u64 = i64::MAX as u64;
/// Most seeds of one command.
const MOST_SEEDS: u64 = 10_000;

/// Parses a seed.
pub fn seed(text: &str) -> Result<u64, String> {
    let seed = text.parse().ok().filter(|seed| *seed <= LARGEST_SEED);
    seed.ok_or_else(|| format!("'{text}' is not a seed from 0 to {LARGEST_SEED}"))
}

/// Seeds in the order of their runs; at least one, without duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds(pub Vec<u64>);

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&words.join(", "))
    }
}

/// Parses `0..5`, 5 not included, or `0,1,4`.
pub fn seeds(text: &str) -> Result<Seeds, String> {
    let expected = || {
        format!(
            "'{text}' is neither a range of seeds, such as 0..5 (5 not included), nor a list, such as 0,1,4"
        )
    };
    // A number that is no seed is told as such.
    let number = |text: &str| {
        seed(text).map_err(|told| match text.parse::<f64>() {
            Ok(_) => told,
            Err(_) => expected(),
        })
    };
    let Some((first, end)) = text.split_once("..") else {
        let seeds: Vec<u64> = text.split(',').map(number).collect::<Result<_, _>>()?;
        let twice = (1..seeds.len()).any(|i| seeds[..i].contains(&seeds[i]));
        return match twice {
            true => Err(format!("'{text}' names a seed twice")),
            false => Ok(Seeds(seeds)),
        };
    };
    let seeds = number(first)?..number(end)?;
    match seeds.end.saturating_sub(seeds.start) {
        0 => Err(format!(
            "'{text}' holds no seed: END is not included, so it must be more than FIRST"
        )),
        1..=MOST_SEEDS => Ok(Seeds(seeds.collect())),
        count => Err(format!(
            "'{text}' names {count} seeds; a command takes {MOST_SEEDS} at most"
        )),
    }
}

/// Parses the name of a device, in any case: `auto`, `cpu`, `cuda` or `cuda:N`.
pub fn device(text: &str) -> Result<String, String> {
    let name = text.to_lowercase();
    let known = match name.split_once(':') {
        None => ["auto", "cpu", "cuda"].contains(&name.as_str()),
        Some((kind, number)) => {
            let digits = number.bytes().all(|byte| byte.is_ascii_digit());
            kind == "cuda" && digits && number.parse::<usize>().is_ok()
        }
    };
    let guess = match name.trim_end_matches(|c: char| c.is_ascii_digit() || c == ':') {
        "gpu" | "nvidia" => "; did you mean 'cuda'?",
        _ => "",
    };
    known.then_some(name).ok_or_else(|| {
        format!("unknown device '{text}'{guess} (known: auto, cpu, cuda:N; see `lra list devices`)")
    })
}

/// Devices that runs are distributed over; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices(pub Vec<String>);

/// Parses `cuda:0..4`, 4 not included, or `cuda:0,cuda:2`.
pub fn devices(text: &str) -> Result<Devices, String> {
    let expected = || {
        format!(
            "'{text}' is neither a range of devices, such as cuda:0..4 (4 not included), nor a list, such as cuda:0,cuda:2"
        )
    };
    let Some((kind, numbers)) = text.split_once(':').filter(|_| text.contains("..")) else {
        let names = text.split(',').map(device);
        let names: Result<Vec<String>, String> = names.collect();
        return names.map(Devices);
    };
    let Seeds(numbers) = seeds(numbers).map_err(|_| expected())?;
    let kind = kind.to_lowercase();
    if kind != "cuda" {
        return Err(expected());
    }
    let named = numbers.iter().map(|number| format!("{kind}:{number}"));
    Ok(Devices(named.collect()))
}

/// Returns the parser of the name of a table; help and error messages list them all.
pub fn table() -> impl TypedValueParser<Value = &'static TableKind> {
    let names = TABLES
        .iter()
        .map(|kind| PossibleValue::new(kind.name).help(kind.summary));
    PossibleValuesParser::new(names).try_map(|name| tables::find(&name.to_lowercase()))
}

/// Parses a number of worker threads; 0 means all cores.
pub fn threads(text: &str) -> Result<usize, String> {
    let most = most_threads();
    let threads = text.parse().ok().filter(|threads| *threads <= most);
    threads.ok_or_else(|| {
        format!(
            "a run has 0 (one for each core) to {most} threads: at most four for each core, or 64 if that is more"
        )
    })
}

/// Returns the parser of a whole number in a range.
pub fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number
            .and_then(|it: u64| it.try_into().ok())
            .ok_or_else(|| {
                let (least, most) = (range.start(), range.end());
                match most {
                    &u64::MAX => format!("'{text}' is not a whole number of at least {least}"),
                    most => format!("'{text}' is not a whole number from {least} to {most}"),
                }
            })
    }
}

/// Parses a number from 0 to 1, 1 not included.
pub fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| {
        format!("'{text}' is not a share: a number from 0 up to 1, and 1 is not included")
    })
}

/// Parses `8G` or `1.5 MiB` into at least one byte.
pub fn bytes(text: &str) -> Result<usize, String> {
    let expected = || format!("'{text}' is not a size of at least one byte, such as 8G or 512M");
    let (digits, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len()),
    );
    let number: f64 = digits.parse().map_err(|_| expected())?;
    let scale = match unit
        .trim()
        .to_ascii_uppercase()
        .trim_end_matches("IB")
        .trim_end_matches('B')
    {
        "" => 1u64,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return Err(expected()),
    };
    let bytes = number * scale as f64;
    if bytes >= 1.0 {
        Ok(bytes as usize)
    } else {
        Err(expected())
    }
}

/// Parses `30s` or `2h`; zero is refused.
pub fn duration(text: &str) -> Result<Duration, String> {
    let expected = || format!("'{text}' is not a duration above zero, such as 30s, 5m or 2h");
    let duration = humantime::parse_duration(text).map_err(|_| expected())?;
    if duration.is_zero() {
        Err(expected())
    } else {
        Ok(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ranges() {
        assert_eq!(bytes("8G"), Ok(8 << 30));
        assert_eq!(bytes("1.5 MiB"), Ok(3 << 19));
        assert!(bytes("lots").is_err() && bytes("0").is_err() && bytes("8X").is_err());
        assert_eq!(seeds("2..5"), Ok(Seeds(vec![2, 3, 4])));
        assert_eq!(seeds("7,0"), Ok(Seeds(vec![7, 0])));
        assert_eq!(seeds("5"), Ok(Seeds(vec![5])));
        for wrong in [
            "5..5",
            "5..4",
            "5,5",
            "5,",
            "0..9999999999",
            "0..18446744073709551615",
        ] {
            assert!(seeds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seed("9223372036854775807"), Ok(LARGEST_SEED));
        assert!(seed("9223372036854775808").is_err() && seed("-1").is_err());
        let names = |text| devices(text).map(|it| it.0.join(" "));
        assert_eq!(names("cuda:1..3").as_deref(), Ok("cuda:1 cuda:2"));
        assert_eq!(names("cuda:0,cpu").as_deref(), Ok("cuda:0 cpu"));
        assert!(names("cuda:3..3").is_err() && names("cpu,").is_err());
        assert_eq!([threads("0"), threads("64")], [Ok(0), Ok(64)]);
        assert!(threads("100000").is_err());
    }

    #[test]
    fn whole_numbers_outside_of_their_range_name_it() {
        let jobs = whole::<u16>(1..=1000);
        assert_eq!((jobs("1"), jobs("1000")), (Ok(1), Ok(1000)));
        for wrong in ["0", "1001", "-1", "1.5", "x", ""] {
            let told = format!("'{wrong}' is not a whole number from 1 to 1000");
            assert_eq!(jobs(wrong), Err(told));
        }
        let row = whole::<usize>(0..=u64::MAX);
        assert_eq!(row("0"), Ok(0));
        assert_eq!(
            row("-1"),
            Err("'-1' is not a whole number of at least 0".to_owned())
        );
        assert!(whole::<u8>(0..=u64::MAX)("256").is_err());
    }

    #[test]
    fn words_of_other_programs_lead_to_values_here() {
        for name in ["gpu", "GPU:1", "nvidia"] {
            assert!(device(name).unwrap_err().contains("did you mean 'cuda'?"));
        }
        assert!(!device("tpu").unwrap_err().contains("did you mean"));
        let source = |word: &str| word.parse::<datasets::Source>().unwrap_err();
        let protocol = |word: &str| word.parse::<datasets::Protocol>().unwrap_err();
        for word in ["real", "published", "LRA"] {
            assert!(source(word).contains("did you mean `official`?"));
        }
        for word in ["original", "lra"] {
            assert!(protocol(word).contains("did you mean `tay2021`?"));
        }
        assert!(!source("elsewhere").contains("did you mean"));
    }
}
