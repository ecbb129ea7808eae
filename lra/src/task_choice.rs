//! Choice of a task and of the source of its data.

use std::fmt;
use std::str::FromStr;

use datasets::Source;
use datasets::tasks::mine;

use crate::error::{Error, Result};
use crate::suggest;

/// `task`, `task:source` or `mine:FOLDER`, the forms that every command accepts.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskChoice {
    /// Registry name, or `mine:` and the whole path of a folder.
    pub name: String,
    /// A source other than the task's own.
    pub source: Option<Source>,
}

impl TaskChoice {
    /// Returns this choice with the source that `--source` names. Two sources that contradict each
    /// other are an error.
    pub fn with_source(&self, source: Option<Source>) -> Result<TaskChoice> {
        match (self.source, source) {
            (Some(own), Some(other)) if own != other => Err(Error::usage(format!(
                "{self} and --source {other} ask for different data: leave out one of them"
            ))),
            (own, other) => Ok(TaskChoice {
                name: self.name.clone(),
                source: own.or(other),
            }),
        }
    }
}

impl fmt::Display for TaskChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match self.source {
            Some(source) => write!(f, ":{source}"),
            None => Ok(()),
        }
    }
}

impl FromStr for TaskChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if mine::is_folder(text) {
            return Ok(TaskChoice {
                name: mine::full_name(text),
                source: None,
            });
        }
        let (name, source) = match text.split_once(':') {
            None => (text, None),
            Some((name, word)) => (name, Some(source(name, word)?)),
        };
        Ok(TaskChoice {
            name: name.to_owned(),
            source,
        })
    }
}

/// Returns the source called `word`; the error names those that the task `name` has.
fn source(name: &str, word: &str) -> Result<Source, String> {
    word.parse().map_err(|unknown: String| {
        let mut tasks = datasets::tasks::registry().iter();
        let Some(task) = tasks.find(|it| it.info().name.eq_ignore_ascii_case(name)) else {
            return unknown;
        };
        let own: Vec<&str> = task.info().sources.iter().map(|it| it.name()).collect();
        let known = format!("known: {}", own.join(", "));
        match suggest::misspelt(word, &own).first() {
            Some(near) => format!("unknown source `{word}`; did you mean `{near}`? ({known})"),
            None => {
                let all = Source::ALL.map(Source::name).join(", ");
                unknown.replace(&format!("known: {all}"), &known)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_stands_behind_the_task_or_beside_it() {
        let task = |text: &str| text.parse::<TaskChoice>().unwrap();
        let both = task("image:synthetic");
        let synthetic = Some(Source::Synthetic);
        assert_eq!(both.to_string(), "image:synthetic");
        assert_eq!(task("image").with_source(synthetic).unwrap(), both);
        assert_eq!(both.with_source(synthetic).unwrap(), both);
        assert_eq!(both.with_source(None).unwrap(), both);
        assert!(both.with_source(Some(Source::Official)).is_err());
        let folder = task("mine:birds");
        assert!(folder.name.starts_with("mine:/") && folder.name.ends_with("/birds"));
        assert_eq!(task(&folder.to_string()), folder);
        assert!("image:elsewhere".parse::<TaskChoice>().is_err());
        assert_eq!(task("MINE:birds"), folder);
        let told = "text:offical".parse::<TaskChoice>().unwrap_err();
        assert!(told.contains("did you mean `official`? (known: "), "{told}");
        let told = "text:zzz".parse::<TaskChoice>().unwrap_err();
        assert!(!told.contains("folder"), "{told}");
    }
}
