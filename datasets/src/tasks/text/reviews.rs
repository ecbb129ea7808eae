//! Labelled reviews as published, all in memory (65 MB), since their order and their splits depend
//! on all of them.

use std::collections::HashSet;
use std::ops::Range;
use std::path::PathBuf;

use rayon::prelude::*;
use sha2::{Digest as _, Sha256};

use crate::archive::{Member, Raw};
use crate::duplicates::row_hash;
use crate::error::{Error, Result};
use crate::lines::{is_web_page, wide};
use crate::locate::{Place, Role, Survey, Wanted, folder_of};
use crate::parquet::{self, Columns};
use crate::{Digest, Progress};

/// Maximum length of a review, in bytes; the longest published one has 13,704.
const LONGEST: usize = 1 << 20;

/// Maximum size of all reviews together, in bytes; the published ones have 65 million.
const MOST: usize = 1 << 30;

/// Hash of a review's text.
pub(super) type Hash = [u8; 32];

/// One review.
#[derive(Debug)]
pub(super) struct Review {
    pub(super) label: u8,
    pub(super) hash: Hash,
    place: Range<usize>,
    /// File name such as `pos/0_9.txt`, if the review came from a file of its own.
    name: Option<String>,
}

/// Reviews of one published split.
#[derive(Debug)]
pub(super) struct Reviews {
    pub(super) split: &'static str,
    pub(super) all: Vec<Review>,
    texts: Vec<u8>,
}

/// A file among the reviews.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Placed<'a> {
    /// A review.
    Review {
        split: &'static str,
        label: u8,
        /// Name of the file.
        file: &'a str,
    },
    /// Another file where reviews are expected, with the reason why it is not a review.
    Stray(&'static str),
}

/// Returns the label for a class's name.
fn label_of(class: &str) -> Option<i64> {
    match class.to_ascii_lowercase().as_str() {
        "neg" | "negative" => Some(0),
        "pos" | "positive" => Some(1),
        _ => None,
    }
}

/// Classifies a published file by its name, or a stray file in its place; `None` for the others,
/// `unsup` among them.
pub(super) fn placed(name: &str) -> Option<Placed<'_>> {
    let mut parts = name.rsplit('/');
    let (file, class, split) = (parts.next()?, parts.next()?, parts.next()?);
    let is_text = file.to_ascii_lowercase().ends_with(".txt");
    let split = split.to_ascii_lowercase();
    let known = ["train", "test"].into_iter().find(|known| *known == split);
    match (known, label_of(class)) {
        (Some(split), Some(label)) if is_text => Some(Placed::Review {
            split,
            label: label as u8,
            file,
        }),
        (Some(_), Some(_)) => Some(Placed::Stray(
            "among the reviews, but its name does not end in .txt",
        )),
        (Some(_), None) if is_text && !is_unlabelled(class) => Some(Placed::Stray(
            "a text in a folder that is not a class: the classes are neg and pos, and unsup is ignored",
        )),
        (None, Some(_))
            if is_text && ["val", "valid", "validation", "dev"].contains(&split.as_str()) =>
        {
            Some(Placed::Stray(
                "reviews of a split that was not published: train and test are read, and validation is cut from train",
            ))
        }
        _ => None,
    }
}

/// Returns the role of a file by its name.
pub(super) fn role(name: &str) -> Role<'_> {
    match placed(name) {
        Some(Placed::Review { split, label, .. }) => {
            let part_folder = folder_of(name);
            Role::Data(Place {
                form: "reviews",
                folder: folder_of(folder_of(part_folder)),
                part: format!("{split}/{label}"),
                part_folder,
            })
        }
        Some(Placed::Stray(problem)) => Role::Stray(problem.to_owned()),
        None if folder_of(name).split('/').any(is_unlabelled) => Role::Unwanted,
        None if name.to_ascii_lowercase().ends_with(".txt") => {
            Role::Loose("a text that is in none of the folders of reviews, {train,test}/{neg,pos}")
        }
        None => Role::Other,
    }
}

/// Returns whether a folder is the one of reviews without a label.
fn is_unlabelled(folder: &str) -> bool {
    folder.eq_ignore_ascii_case("unsup")
}

/// Reads both splits from a folder or an archive. Returns notes about other files too.
pub(super) fn from_members(
    raw: &Raw,
    survey: Survey,
    wanted: &Wanted<'_>,
    progress: &dyn Progress,
) -> Result<([Reviews; 2], Vec<String>)> {
    let mut both = ["train", "test"].map(Reviews::empty);
    let survey = wanted.members(raw, survey, "reading reviews", progress, &mut |mut member| {
        let Some(Placed::Review { split, label, file }) = placed(member.name) else {
            return Ok(());
        };
        let known = rating(file).is_some_and(|rating| match label {
            0 => (1..=4).contains(&rating),
            _ => (7..=10).contains(&rating),
        });
        if !known {
            return Err(member.wrong(
                "its name is not <number>_<rating>.txt with a rating of 1 to 4 (neg) or 7 to 10 (pos)",
            ));
        }
        both[usize::from(split == "test")].take(&mut member, label, file)
    })?;
    for reviews in &mut both {
        let finished = reviews.finish(raw.path().to_owned());
        finished.map_err(|error| survey.with_others(error))?;
    }
    Ok((both, survey.notes()))
}

/// Reads both splits from parquet files with the columns `text` and `label`.
pub(super) fn from_parquet(
    train: &[PathBuf],
    test: &[PathBuf],
    progress: &dyn Progress,
) -> Result<[Reviews; 2]> {
    let columns = Columns {
        bytes: &["text"],
        label: "label",
        label_of: &label_of,
        longest: LONGEST,
    };
    let mut both = ["train", "test"].map(Reviews::empty);
    progress.begin("reading reviews", None);
    for (reviews, files) in both.iter_mut().zip([train, test]) {
        parquet::read_split(files, &columns, &mut |file, row, text, label| {
            let label = match label {
                0 => 0,
                1 => 1,
                other => {
                    return Err(Error::Row {
                        file: file.to_owned(),
                        line: row,
                        problem: format!("the label {other} is neither 0 nor 1"),
                    });
                }
            };
            let text = disk::without_mark(text);
            let place = reviews.texts.len()..reviews.texts.len() + text.len();
            reviews.texts.extend_from_slice(text);
            progress.advance(1);
            reviews.push(file.to_owned(), place, label, None)?;
            Ok(row_hash([text.trim_ascii()]))
        })?;
        reviews.finish(files.first().cloned().unwrap_or_default())?;
    }
    progress.finish();
    Ok(both)
}

/// Returns the rating in a file's name.
fn rating(file: &str) -> Option<u32> {
    let (stem, _) = file.rsplit_once('.')?;
    let (number, rating) = stem.split_once('_')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(number) && digits(rating)).then(|| rating.parse().ok())?
}

impl Reviews {
    fn empty(split: &'static str) -> Reviews {
        Reviews {
            split,
            all: Vec::new(),
            texts: Vec::new(),
        }
    }

    fn take(&mut self, member: &mut Member<'_>, label: u8, file: &str) -> Result<()> {
        let start = self.texts.len();
        member.bytes(LONGEST as u64, &mut self.texts)?;
        let review = &self.texts[start..];
        if let Some(problem) = wide(review) {
            return Err(member.wrong(problem));
        }
        if is_web_page(review) {
            return Err(member.wrong("a web page instead of a review"));
        }
        let mark = review.len() - disk::without_mark(review).len();
        self.texts.drain(start..start + mark);
        let class = ["neg", "pos"][usize::from(label)];
        let place = start..self.texts.len();
        self.push(
            member.path.clone(),
            place,
            label,
            Some(format!("{class}/{file}")),
        )
    }

    fn push(
        &mut self,
        path: PathBuf,
        place: Range<usize>,
        label: u8,
        name: Option<String>,
    ) -> Result<()> {
        let problem = if self.texts[place.clone()].trim_ascii().is_empty() {
            "an empty review".to_owned()
        } else if self.texts.len() > MOST {
            format!("with it the reviews have more than {MOST} bytes")
        } else {
            self.all.push(Review {
                label,
                hash: [0; 32],
                place,
                name,
            });
            return Ok(());
        };
        Err(Error::File {
            file: path,
            problem,
        })
    }

    /// Hashes the texts and puts the reviews in the order of their hashes.
    fn finish(&mut self, path: PathBuf) -> Result<()> {
        for (label, class) in ["negative", "positive"].into_iter().enumerate() {
            if self.count(label as u8) == 0 {
                return Err(Error::File {
                    file: path,
                    problem: format!("no {class} review of {}", self.split),
                });
            }
        }
        let mut names: Vec<_> = self.all.iter().filter_map(|r| r.name.as_deref()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::File {
                file: path,
                problem: format!("{}/{} is there twice", self.split, twice[0]),
            });
        }
        let texts = &self.texts;
        self.all.par_iter_mut().for_each(|review| {
            review.hash = Sha256::digest(&texts[review.place.clone()]).into();
        });
        self.all.sort_by_key(|review| (review.hash, review.label));
        Ok(())
    }

    pub(super) fn text(&self, review: &Review) -> &[u8] {
        &self.texts[review.place.clone()]
    }

    /// Returns the number of reviews of a class.
    pub(super) fn count(&self, label: u8) -> usize {
        self.all
            .iter()
            .filter(|review| review.label == label)
            .count()
    }

    /// Returns the number of bytes of all texts.
    pub(super) fn bytes(&self) -> usize {
        self.texts.len()
    }

    /// Returns the hashes of all texts.
    pub(super) fn hashes(&self) -> HashSet<Hash> {
        self.all.iter().map(|review| review.hash).collect()
    }

    /// Returns the number of reviews with each rating, `1:5100 2:2284 ...`; `None` for reviews
    /// without a file name.
    pub(super) fn ratings(&self) -> Option<String> {
        let mut counts = [0; 11];
        for review in &self.all {
            let (_, file) = review.name.as_deref()?.split_once('/')?;
            *counts.get_mut(rating(file)? as usize)? += 1;
        }
        let counted = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let text: Vec<_> = counted
            .map(|(rating, count)| format!("{rating}:{count}"))
            .collect();
        Some(text.join(" "))
    }

    /// Returns the SHA-256 over path, NUL, decimal length, NUL and text of every review in the
    /// order of paths; `None` for reviews without a file name.
    pub(super) fn digest_by_path(&self) -> Option<String> {
        let mut named = Vec::with_capacity(self.all.len());
        for review in &self.all {
            named.push((review.name.as_deref()?, self.text(review)));
        }
        named.sort_unstable();
        let mut digest = Digest::default();
        for (name, text) in named {
            let head = format!("aclImdb/{}/{name}\0{}\0", self.split, text.len());
            digest.update(head.as_bytes());
            digest.update(text);
        }
        Some(digest.hex())
    }

    /// Returns the SHA-256 over label and hash of every review in the order of hashes: the same for
    /// every form of the files.
    pub(super) fn digest_by_content(&self) -> String {
        let mut digest = Digest::default();
        for review in &self.all {
            digest.update(&[review.label]);
            digest.update(&review.hash);
        }
        digest.hex()
    }
}
