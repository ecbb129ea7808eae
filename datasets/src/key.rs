//! Identity of stored data.

use serde_json::{Map, Value, json};

use crate::{Digest, Protocol, Source};

/// All inputs that determine the bytes of a stored entry, except for the task and its version.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// Source of the data.
    pub source: Source,
    /// Protocol by which the splits are cut.
    pub protocol: Protocol,
    /// The task's options, complete.
    pub options: Value,
}

impl Key {
    /// Returns the folder name: `<task>-<source>-<16 hexadecimal digits>`. The key must be the
    /// task's [`identity`](crate::Task::identity) of a key, as in the store; `code` is the digest of
    /// the source code of a program's own task, empty for others.
    pub fn folder_name(&self, task: &str, version: u32, code: &str) -> String {
        let mut identity = json!({
            "task": task,
            "version": version,
            "source": self.source,
            "protocol": self.protocol,
            "options": without_later(&self.options),
        });
        if !code.is_empty() {
            identity["code"] = json!(code);
        }
        let digest = Digest::of(canonical_json(&identity).as_bytes());
        format!("{}-{}-{}", file_name(task), self.source, &digest[..16])
    }
}

/// Longest part of a task's name in that of a folder, in letters.
const LONGEST: usize = 64;

/// Returns the name of a task as that of a file. Names of folders, such as `mine:/home/me/birds`,
/// keep their last part alone: `mine_birds`.
fn file_name(task: &str) -> String {
    let plain = |name: &str| -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        name.chars().map(plain).take(LONGEST).collect()
    };
    match task.split_once(':') {
        Some((kind, path)) => {
            let last = path.rsplit(['/', '\\']).next().unwrap_or_default();
            format!("{kind}_{}", plain(last))
        }
        None => task.to_owned(),
    }
}

/// Returns the options without those that are newer than some stored entries and have the value
/// that changes no byte. They are left out of the name, so that earlier entries keep their names.
fn without_later(options: &Value) -> Value {
    let later = [
        ("dense", json!(false)),
        ("min_dashes", json!(0)),
        ("max_dashes", json!(0)),
        ("topics", json!("names")),
    ];
    let mut options = options.clone();
    if let Some(map) = options.as_object_mut() {
        map.retain(|key, value| !later.iter().any(|(name, off)| key == name && value == off));
    }
    options
}

/// Returns the canonical JSON text of a value: keys sorted, no spaces. A number is written as it is
/// stored. So a setting must always be stored as a whole number or always as a real one, regardless
/// of its notation.
pub fn canonical_json(value: &Value) -> String {
    canonical(value).to_string()
}

fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            let entries = entries.into_iter();
            Value::Object(
                entries
                    .map(|(key, value)| (key.clone(), canonical(value)))
                    .collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => items.iter().map(canonical).collect(),
        leaf => leaf.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::{Text, Toy};

    #[test]
    fn order_does_not_matter() {
        let one = json!({"b": 1, "a": [true, {"y": 0.25, "x": null}]});
        let other = json!({"a": [true, {"x": null, "y": 2.5e-1}], "b": 1});
        assert_eq!(
            canonical_json(&one),
            r#"{"a":[true,{"x":null,"y":0.25}],"b":1}"#
        );
        assert_eq!(canonical_json(&one), canonical_json(&other));
    }

    #[test]
    fn commands_name_what_is_not_the_default() {
        let mut key = Key::default_of(&Toy);
        assert_eq!(
            key.make_command(&Toy),
            "lra data make toy --source generated"
        );
        key.options["seed"] = json!(5);
        key.options["max_length"] = json!(32);
        key.options["val"] = json!(9);
        assert_eq!(
            key.make_command(&Toy),
            "lra data make toy --source generated --set data.seed=5 --set data.val=9"
        );
        // Drawn data have one protocol, published ones two.
        key.protocol = Protocol::Tay2021;
        assert!(!key.make_command(&Toy).contains("--protocol"));
        let mut published = Key::default_of(&Text);
        published.options["seed"] = json!(5);
        let command = "lra data make text --source official";
        assert_eq!(published.make_command(&Text), command);
        published.protocol = Protocol::Tay2021;
        let command = "lra data make text --source official --protocol tay2021";
        assert_eq!(published.make_command(&Text), command);
    }

    #[test]
    fn an_option_that_came_later_leaves_the_names_of_earlier_entries() {
        let named = |options: Value| {
            let key = Key {
                source: Source::Generated,
                protocol: Protocol::Clean,
                options,
            };
            key.folder_name("toy", 1, "")
        };
        let earlier = named(json!({"seed": 1}));
        assert_eq!(named(json!({"seed": 1, "dense": false})), earlier);
        assert_ne!(named(json!({"seed": 1, "dense": true})), earlier);
        let options = json!({"seed": 1, "min_dashes": 0, "max_dashes": 0, "topics": "names"});
        assert_eq!(named(options), earlier);
        for (option, value) in [
            ("min_dashes", json!(1)),
            ("max_dashes", json!(1)),
            ("topics", json!("anagrams")),
        ] {
            let mut options = json!({"seed": 1});
            options[option] = value;
            assert_ne!(named(options), earlier, "{option}");
        }
    }

    #[test]
    fn every_part_of_the_key_matters() {
        let key = Key {
            source: Source::Generated,
            protocol: Protocol::Clean,
            options: json!({"seed": 1}),
        };
        let mut names = vec![
            key.folder_name("toy", 1, ""),
            key.folder_name("toy", 2, ""),
            key.folder_name("toy", 1, "c0de"),
        ];
        for changed in [
            Key {
                source: Source::Official,
                ..key.clone()
            },
            Key {
                protocol: Protocol::Tay2021,
                ..key.clone()
            },
            Key {
                options: json!({"seed": 2}),
                ..key.clone()
            },
        ] {
            names.push(changed.folder_name("toy", 1, ""));
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 6);
    }
}
