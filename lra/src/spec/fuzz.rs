//! Tests of random values, sensible or not, for every setting. Each is refused by an error that
//! names it, or leads to a run that works.

use std::panic::{AssertUnwindSafe, catch_unwind};

use candle_core::Device;
use datasets::{Protocol, TASKS};
use models::MODELS;
use serde_json::{Value, json};

use super::{PretrainOptions, Resolved, RunRequest, Spec};
use crate::bench::worker::{Steps, measure};
use crate::error::{Class, Result};

/// Least number of values that are tried.
const CASES: usize = 20_000;
/// One in this many accepted small settings is trained for one step.
const TRAINED: usize = 12;
/// Most floating point operations of a small step.
const SMALL: u64 = 50_000_000;

/// Spellings that have caused trouble elsewhere.
const SPELLINGS: &[&str] = &[
    "",
    " ",
    "0",
    "1",
    "2",
    "3",
    "-1",
    "-0.0",
    "0.5",
    "0.999999",
    "1.0",
    "1.5",
    "1e300",
    "-1e300",
    "1e-300",
    "1e999",
    "nan",
    "inf",
    "-inf",
    "null",
    "true",
    "false",
    "65535",
    "65536",
    "65537",
    "4294967295",
    "4294967296",
    "281474976710656",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "0x10",
    "1_000",
    "0o7",
    "1979-05-27",
    "''",
    "'x'",
    "\"\"",
    "\"unterminated",
    "[]",
    "[1, 2]",
    "[[[]]]",
    "{}",
    "{a=1}",
    "=",
    "a=b",
    "paper",
    "tay2021",
    "\u{0}",
    "\u{1f980}",
    "\n",
    "1\n2",
    "../..",
    "%s",
    "-",
];

/// SplitMix64 random number generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.roll() % count as u64) as usize
    }

    fn value(&mut self, default: &Value) -> String {
        match self.below(6) {
            0 | 1 => SPELLINGS[self.below(SPELLINGS.len())].to_owned(),
            2 => {
                let bits = self.below(64);
                (self.roll() >> bits).to_string()
            }
            3 => format!("-{}", self.roll() >> self.below(64)),
            4 => f64::from_bits(self.roll()).to_string(),
            // Values near those that work.
            _ => match default.as_u64() {
                Some(number) => (number * self.below(4) as u64 + self.below(3) as u64).to_string(),
                None => format!("{}", self.below(1000) as f64 / 500.0),
            },
        }
    }
}

/// Returns the outcome of a value; on failure the class and message of the error.
fn outcome(request: &RunRequest<'_>, trains: bool) -> Result<Option<bool>> {
    let resolved = request.resolve()?;
    let text = resolved.spec.to_toml()?;
    let again: Spec = toml::from_str(&text).unwrap();
    assert_eq!(
        again.digest(),
        resolved.spec.digest(),
        "settings survive being saved"
    );
    if !(trains && is_small(&resolved)?) {
        return Ok(None);
    }
    let steps = Steps {
        task: request.task.to_owned(),
        source: resolved.spec.cell.source,
        model: request.model.to_owned(),
        recipe: request.recipe.to_owned(),
        assignments: request.assignments.to_vec(),
        warmup: 0,
        least: 1,
        seconds: 0.0,
        most: 1,
    };
    match measure(&steps, &Device::Cpu) {
        Ok(measured) => Ok(Some(measured.seconds.len() == 1)),
        // A learning rate of 1e300 is allowed, and diverges.
        Err(error) if error.to_string().contains("not finite") => Ok(Some(true)),
        Err(error) => panic!("{error}"),
    }
}

fn is_small(resolved: &Resolved) -> Result<bool> {
    let length = resolved.data_shape()?.max_length;
    let (meta, sizes) = resolved.meta()?;
    let few = sizes.elements() < 1 << 20 && length <= 1024;
    Ok(few && meta.flops(resolved.spec.train.batch, length) < SMALL)
}

#[test]
fn every_setting_takes_any_value_or_refuses_it_by_name() {
    let mut dice = Dice(2026);
    let (mut cases, mut accepted, mut trained) = (0, 0, 0);
    while cases < CASES {
        for model in MODELS {
            let task = TASKS[dice.below(TASKS.len())];
            let request = RunRequest {
                task: task.info().name,
                model: model.name,
                recipe: "smoke",
                source: None,
                protocol: Protocol::Clean,
                seed: 0,
                assignments: &[],
            };
            let mut settings = json!(request.resolve().unwrap().spec);
            // A setting that is off is left out of the specification.
            settings["pretrain"] = json!(PretrainOptions::default());
            for (section, keys) in settings
                .as_object()
                .unwrap()
                .iter()
                .filter(|(name, _)| *name != "cell")
            {
                for (key, default) in keys.as_object().unwrap() {
                    cases += 1;
                    let assignment = [format!("{section}.{key}={}", dice.value(default))];
                    let request = RunRequest {
                        assignments: &assignment,
                        ..request.clone()
                    };
                    let trains = accepted % TRAINED == 0;
                    let name = format!(
                        "--task {} --model {} --set {:?}",
                        request.task, request.model, assignment[0]
                    );
                    match catch_unwind(AssertUnwindSafe(|| outcome(&request, trains))) {
                        Err(_) => panic!("{name} panics"),
                        Ok(Ok(step)) => {
                            accepted += 1;
                            assert_ne!(step, Some(false), "{name}: no step was made");
                            trained += usize::from(step.is_some());
                        }
                        Ok(Err(error)) => {
                            assert_eq!(error.class, Class::Usage, "{name}: {error}");
                            let words = error.to_string();
                            assert!(words.contains(key.as_str()), "{name} is not named: {words}");
                        }
                    }
                }
            }
        }
    }
    assert!(accepted > CASES / 20, "{accepted} of {cases} were accepted");
    assert!(trained > 20, "{trained} of {accepted} were trained with");
}
