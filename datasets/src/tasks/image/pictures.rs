//! A set of pictures with their places in the published order, and the reading of colour pictures
//! as PNG.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use image::codecs::png::PngDecoder;
use image::{ColorType, ImageDecoder, Limits};
use sha2::{Digest as _, Sha256};

use super::{CLASSES, PIXELS, SIDE, grey, label_of};
use crate::Progress;
use crate::archive::Member;
use crate::duplicates::row_hash;
use crate::error::{Error, Result};
use crate::parquet::{self, Columns};

/// Maximum size of a picture's PNG file; unpacked it has 3 KiB.
const LARGEST_PNG: u64 = 1 << 16;

/// Three channels of a picture, one after the other: red, green, blue.
pub(super) type Channels = [u8; 3 * PIXELS];

/// Pictures of one published split.
#[derive(Debug, Default)]
pub(super) struct Pictures {
    found: Vec<Picture>,
}

#[derive(Debug)]
pub(super) struct Picture {
    /// Place in the published files of its split, from 0.
    pub(super) place: usize,
    pub(super) label: u8,
    pub(super) channels: Box<Channels>,
}

impl Picture {
    /// Returns its grey values, row by row.
    pub(super) fn grey(&self) -> [u8; PIXELS] {
        grey::picture(&self.channels)
    }

    /// Returns a hash of its grey values.
    pub(super) fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.grey()).into()
    }
}

impl Pictures {
    pub(super) fn push(&mut self, place: usize, label: u8, channels: Box<Channels>) {
        self.found.push(Picture {
            place,
            label,
            channels,
        });
    }

    pub(super) fn len(&self) -> usize {
        self.found.len()
    }

    /// Returns the pictures in the order of their places, regardless of the order they were read
    /// in.
    pub(super) fn sorted(&mut self) -> &[Picture] {
        self.found.sort_by_key(|picture| picture.place);
        &self.found
    }

    /// Changes the place of every picture by `place`.
    pub(super) fn replace(&mut self, place: impl Fn(usize) -> usize) {
        for picture in &mut self.found {
            picture.place = place(picture.place);
        }
    }

    /// Returns the number of pictures of each class, among those with these places.
    pub(super) fn labels(&self, places: std::ops::Range<usize>) -> [usize; CLASSES.len()] {
        let mut counts = [0; CLASSES.len()];
        for picture in &self.found {
            if places.contains(&picture.place) {
                counts[usize::from(picture.label)] += 1;
            }
        }
        counts
    }

    /// Returns whether the places are 0, 1, 2 and so on; places 1, 2, 3 and so on are first reduced
    /// by one.
    pub(super) fn numbered(&mut self) -> bool {
        let first = match self.sorted().first() {
            Some(picture) if picture.place <= 1 => picture.place,
            _ => return false,
        };
        self.replace(|place| place - first);
        let mut places = self.found.iter().enumerate();
        places.all(|(place, picture)| picture.place == place)
    }

    /// Numbers the pictures in the order of their hashes, which is the same regardless of the order
    /// they were read in.
    pub(super) fn number(&mut self) {
        self.found
            .sort_by_cached_key(|picture| (picture.hash(), picture.label));
        for (place, picture) in self.found.iter_mut().enumerate() {
            picture.place = place;
        }
    }
}

/// A file in a folder of a class.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// A picture.
    Picture {
        of_test: bool,
        label: u8,
        /// Number at the beginning of the file's name.
        place: Option<usize>,
    },
    /// Another file, with the reason why it is not a picture.
    Stray(String),
}

/// Usual file name endings of pictures, in lower case.
const PICTURES: [&str; 10] = [
    ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".npy",
];

/// Returns whether a file is named like a picture.
pub(super) fn is_picture(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    PICTURES.iter().any(|end| lower.ends_with(end))
}

/// Classifies a file `.../{train,test}/<class>/<name>.png`, with the class by name or number, or a
/// stray file in its place.
pub(super) fn placed(name: &str) -> Option<Placed> {
    let mut parts = name.rsplit('/');
    let (file, class, split) = (parts.next()?, parts.next()?, parts.next()?);
    let lower = file.to_ascii_lowercase();
    let is_picture = is_picture(file);
    let of_test = match split.to_ascii_lowercase().as_str() {
        "train" => Some(false),
        "test" => Some(true),
        "val" | "valid" | "validation" | "dev" => None,
        _ => return None,
    };
    let stray = |problem: String| Some(Placed::Stray(problem));
    match (of_test, label_of(class)) {
        (Some(of_test), Some(label)) if lower.ends_with(".png") => {
            let digits = lower.bytes().take_while(u8::is_ascii_digit).count();
            Some(Placed::Picture {
                of_test,
                label: label as u8,
                place: lower[..digits].parse().ok(),
            })
        }
        (Some(_), Some(_)) => stray(
            "in a folder of pictures, but no PNG file, which alone keeps pixels as published"
                .to_owned(),
        ),
        (Some(_), None) if is_picture => stray(format!(
            "`{class}` is not a class of CIFAR-10; the classes are {}, or 0 to 9",
            CLASSES.join(", ")
        )),
        (None, Some(_)) if is_picture => stray(format!(
            "pictures of a split `{split}`, which was not published: train and test are read, and validation is cut from train"
        )),
        _ => None,
    }
}

/// Reads one PNG file of a folder or archive.
pub(super) fn read_member(member: &mut Member<'_>) -> Result<Box<Channels>> {
    let mut bytes = Vec::new();
    member.bytes(LARGEST_PNG, &mut bytes)?;
    decode(&bytes).map_err(|problem| member.wrong(problem))
}

/// Reads the parquet files of one split, which have the columns `img.bytes` (or `image.bytes`) and
/// `label`, in the published order.
pub(super) fn read_parquet(
    files: &[PathBuf],
    progress: &dyn Progress,
    pictures: &mut Pictures,
) -> Result<()> {
    let columns = Columns {
        bytes: &["img.bytes", "image.bytes"],
        label: "label",
        label_of: &label_of,
        longest: LARGEST_PNG as usize,
    };
    parquet::read_split(files, &columns, &mut |file, row, png, label| {
        let wrong = |problem: String| wrong_row(file, row, problem);
        let known = u8::try_from(label)
            .ok()
            .filter(|label| usize::from(*label) < CLASSES.len());
        let label = known.ok_or_else(|| wrong(format!("the label {label} is not 0 to 9")))?;
        let channels = decode(png).map_err(wrong)?;
        // A picture may be packed in several ways.
        let hash = row_hash([&channels[..]]);
        pictures.push(pictures.len(), label, channels);
        progress.advance(1);
        Ok(hash)
    })
}

pub(super) fn wrong_row(file: &Path, line: u64, problem: String) -> Error {
    Error::Row {
        file: file.to_owned(),
        line,
        problem,
    }
}

/// Returns the channels of a PNG picture of the published size.
pub(super) fn decode(png: &[u8]) -> Result<Box<Channels>, String> {
    let mut limits = Limits::default();
    limits.max_alloc = Some(1 << 20);
    let unreadable = |error| format!("not a readable PNG picture: {error}");
    let decoder = PngDecoder::with_limits(Cursor::new(png), limits).map_err(unreadable)?;
    let (width, height) = decoder.dimensions();
    if (width as usize, height as usize) != (SIDE, SIDE) {
        return Err(format!(
            "{width} x {height} pixels instead of {SIDE} x {SIDE}"
        ));
    }
    if decoder.color_type() != ColorType::Rgb8 {
        return Err("not a picture of three channels of eight bits".to_owned());
    }
    let mut bytes = [0; 3 * PIXELS];
    decoder.read_image(&mut bytes).map_err(unreadable)?;
    // The PNG is stored pixel by pixel, the result channel by channel.
    Ok(Box::new(std::array::from_fn(|i| {
        bytes[i % PIXELS * 3 + i / PIXELS]
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_numbered_from_zero_or_one_without_a_gap() {
        let numbered = |places: &[usize]| {
            let mut pictures = Pictures::default();
            for &place in places {
                pictures.push(place, place as u8, Box::new([0; 3 * PIXELS]));
            }
            let is_numbered = pictures.numbered();
            let places = pictures.sorted().iter().map(|it| (it.place, it.label));
            is_numbered.then(|| places.collect::<Vec<_>>())
        };
        assert_eq!(numbered(&[2, 0, 1]), Some(vec![(0, 0), (1, 1), (2, 2)]));
        assert_eq!(numbered(&[2, 3, 1]), Some(vec![(0, 1), (1, 2), (2, 3)]));
        for places in [&[][..], &[2, 3], &[0, 2], &[1, 2, 2], &[0, 0]] {
            assert_eq!(numbered(places), None, "{places:?}");
        }
    }
}
