//! Parameters with their own learning rate or weight decay (`train.groups`).

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A group of parameters with their own training settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterGroup {
    /// Paths of the parameters, with `*` for any characters: `*.log_dt`.
    pub parameters: String,
    /// Learning rate in place of `train.learning_rate`; the schedule is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// Weight decay in place of `train.weight_decay`, regardless of `train.decay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
}

impl ParameterGroup {
    /// Returns whether the parameter at `path` belongs to the group.
    pub fn has(&self, path: &str) -> bool {
        let mut parts = self.parameters.split('*');
        let Some(mut rest) = parts.next().and_then(|start| path.strip_prefix(start)) else {
            return false;
        };
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        false
    }
}

/// Refuses a group without parameters: the pattern or the model is wrong.
pub fn check(groups: &[ParameterGroup], paths: &[String]) -> Result<()> {
    for group in groups {
        if !paths.iter().any(|path| group.has(path)) {
            let name = &group.parameters;
            return Err(Error::usage(format!(
                "train.groups: no parameter is called '{name}'; there are {}",
                names(paths)
            )));
        }
    }
    Ok(())
}

/// Returns the last parts of all paths, each once, as patterns.
fn names(paths: &[String]) -> String {
    let mut names: Vec<&str> = paths
        .iter()
        .filter_map(|path| path.rsplit('.').next())
        .collect();
    names.sort_unstable();
    names.dedup();
    let all: Vec<String> = names.iter().map(|name| format!("*.{name}")).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_name_parameters_by_patterns() {
        let has = |pattern: &str, path: &str| {
            let parameters = pattern.to_owned();
            let group = ParameterGroup {
                parameters,
                learning_rate: None,
                weight_decay: None,
            };
            group.has(path)
        };
        let path = "encoder.0.mixer.log_dt";
        for pattern in ["*", "*.log_dt", "encoder.*.log_*", path, "*.0.*"] {
            assert!(has(pattern, path), "{pattern}");
        }
        for pattern in [
            "",
            "log_dt",
            "*.log_d",
            "encoder",
            "*mixer*mixer*",
            "head.*",
        ] {
            assert!(!has(pattern, path), "{pattern}");
        }
    }
}
