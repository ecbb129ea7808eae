//! Checksums of the published pictures: some were published by others, some are computed from a
//! copy of a part of the pictures. All are of the binary files, and every form that keeps the
//! published order gives the same records: a picture's label, then its red, its green and its blue
//! values.

use sha1::{Digest as _, Sha1};

use super::CLASSES;
use super::pictures::{Picture, Pictures};
use super::records::{BATCHES, RECORD_BYTES, RECORDS, file_name, first_place};
use crate::digest::hexadecimal;
use crate::{Digest, Known, SplitWriter};

/// Number of records at the beginning of a file with a separate checksum, for truncated files.
const FIRST: usize = 1000;

/// Published values of one file.
struct Published {
    /// Number of pictures of each class.
    labels: [usize; CLASSES.len()],
    /// SHA-256 of its labels, a byte each.
    labels_in_order: &'static str,
    /// SHA-256 of its first [`FIRST`] records.
    first: &'static str,
    /// Name that git gives to a file of this content: the SHA-1 over a header with the size and the
    /// content. Two repositories agree on it.
    blob: &'static str,
}

/// Files of train, then that of test.
static PUBLISHED: [Published; BATCHES + 1] = [
    Published {
        labels: [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981],
        labels_in_order: "d829dbdf32167c9d7b3687cee66d92d80d46c441308b5aca0d11e8b69e27dac9",
        first: "1c5f9ea0fc1111d586f29115efd3db25eecf7db27b29aaebbe84721446b052cc",
        blob: "da09f891072747be90e69e4f00ba7cba870dc87e",
    },
    Published {
        labels: [984, 1007, 1010, 995, 1010, 988, 1008, 1026, 987, 985],
        labels_in_order: "5d18f7371ed35ea9ade77952fe958b0660a45cd6c8b8a8970030f21612cfd7e3",
        first: "4f979f9b23aaa1ed4caa123051abf301d1bf3efaafb71eb652c88915b5724f2d",
        blob: "7e958840b7a55df3353574298ebc9ca0e4bba48e",
    },
    Published {
        labels: [994, 1042, 965, 997, 990, 1029, 978, 1015, 961, 1029],
        labels_in_order: "32cf77b0ee2e790b1c4384d2d82e42dc1571b87e67f6da8f444b2725b2973f65",
        first: "b22c7fc2fb3577032913fa43c14b40b539abf70f40cfc257fa90f035d3728e34",
        blob: "5259a3e9674ffdf2d5c33a1067f7192ff06c9e2f",
    },
    Published {
        labels: [1003, 963, 1041, 976, 1004, 1021, 1004, 981, 1024, 983],
        labels_in_order: "d2815e3f8f656272864920fc0edde56b04ec9cf81bf397c0dd3069f4aea51aeb",
        first: "998398a620412db9b26cad6a83aff2d049fef005e171474ed2676c0397c7157f",
        blob: "301e7d16d78428f13262e87a5bc78ed45b8224aa",
    },
    Published {
        labels: [1014, 1014, 952, 1016, 997, 1025, 980, 977, 1003, 1022],
        labels_in_order: "2ddf3ab27d5d04409c94ce7b56849c243129c10de1058ae0bfe14c77e934800c",
        first: "d427e63de6374fb63b5a1d61a35cf7a9457aaac5f1af2ef2ac87ecfef4877085",
        blob: "51fe428dfbdd065852912743ae8b7b63bb1e9d8d",
    },
    Published {
        labels: [1000; CLASSES.len()],
        labels_in_order: "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
        first: "8314c96d7cd65618193bab23acdd5d4c4af15bf6dd00a1781d55beedf3be1ef5",
        blob: "e3f3b4653f18f27ada1558cabc3352a3ed1b25cc",
    },
];

/// Returns the facts that the published files have.
pub(super) fn known() -> Vec<Known> {
    let of_file = |(file, published): (usize, &Published)| {
        [
            Known::whole(fact_name(file, LABELS), format!("{:?}", published.labels)),
            Known::part(fact_name(file, FIRST_RECORDS), published.first),
            Known::part(fact_name(file, IN_ORDER), published.labels_in_order),
            Known::part(fact_name(file, BLOB), published.blob),
        ]
    };
    PUBLISHED.iter().enumerate().flat_map(of_file).collect()
}

const LABELS: &str = "labels";
const FIRST_RECORDS: &str = "first 1000 records";
const IN_ORDER: &str = "labels in order";
const BLOB: &str = "git blob";

fn fact_name(file: usize, what: &str) -> String {
    let name = file_name(file);
    format!("{}: {what}", name.trim_end_matches(".bin"))
}

/// Records the facts of one file: its labels, and checksums of the part that is present without a
/// gap.
pub(super) fn describe(pictures: &mut Pictures, file: usize, writer: &mut SplitWriter) {
    let labels = pictures.labels(places(file));
    let records = of_file(pictures, file);
    let first = first_digest(records);
    let whole = in_place(records, file) && records.len() == RECORDS;
    let sums = whole.then(|| (labels_digest(records), blob(records)));
    let mut fact = |what: &str, value: String| writer.fact(fact_name(file, what), value);
    fact(LABELS, format!("{labels:?}"));
    if let Some(first) = first.filter(|_| in_place(&records[..FIRST], file)) {
        fact(FIRST_RECORDS, first);
    }
    if let Some((labels, blob)) = sums {
        fact(IN_ORDER, labels);
        fact(BLOB, blob);
    }
}

/// Returns whether the pictures of a file have the published number of each class.
pub(super) fn has_labels(pictures: &Pictures, file: usize) -> bool {
    pictures.labels(places(file)) == PUBLISHED[file].labels
}

/// Puts train in the published order: its batches may follow each other in another order than their
/// numbers (the library that packed the parquet files took them in archive order). Batches are
/// recognized by their first records. Returns the order that they had, if it was another one.
pub(super) fn put_in_order(train: &mut Pictures) -> Option<[usize; BATCHES]> {
    let known: [&str; BATCHES] = std::array::from_fn(|batch| PUBLISHED[batch].first);
    put_in_order_of(train, &known)
}

/// Puts train in order by the given checksums of the first records of each batch.
fn put_in_order_of(train: &mut Pictures, published: &[&str; BATCHES]) -> Option<[usize; BATCHES]> {
    let mut order = [None; BATCHES];
    for (place, batch) in order.iter_mut().enumerate() {
        let records = of_file(train, place);
        if let Some(first) = first_digest(records).filter(|_| in_place(&records[..FIRST], place)) {
            *batch = published.iter().position(|known| *known == first);
        }
    }
    // Batches that are not recognized fill the gaps, in order.
    let mut left = (0..BATCHES).filter(|batch| !order.contains(&Some(*batch)));
    let mut filled = [0; BATCHES];
    for (batch, known) in filled.iter_mut().zip(order) {
        *batch = known.or_else(|| left.next())?;
    }
    let each_once = (0..BATCHES).all(|batch| filled.contains(&batch));
    if filled.is_sorted() || !each_once {
        return None;
    }
    train.replace(|place| match filled.get(place / RECORDS) {
        Some(batch) => batch * RECORDS + place % RECORDS,
        None => place,
    });
    Some(filled)
}

/// Returns the places of a file's pictures in its split.
fn places(file: usize) -> std::ops::Range<usize> {
    let start = first_place(file);
    start..start + RECORDS
}

/// Returns the pictures of a file, in order.
fn of_file(pictures: &mut Pictures, file: usize) -> &[Picture] {
    let places = places(file);
    let sorted = pictures.sorted();
    let at = |place: usize| sorted.partition_point(|picture| picture.place < place);
    &sorted[at(places.start)..at(places.end)]
}

/// Returns whether pictures have the first places of a file, without a gap.
fn in_place(records: &[Picture], file: usize) -> bool {
    let start = places(file).start;
    let mut numbered = records.iter().enumerate();
    numbered.all(|(index, picture)| picture.place == start + index)
}

/// Returns the SHA-256 of the first records; `None` where there are fewer.
fn first_digest(records: &[Picture]) -> Option<String> {
    let mut digest = Digest::default();
    for picture in records.get(..FIRST)? {
        digest.update(&[picture.label]);
        digest.update(&picture.channels[..]);
    }
    Some(digest.hex())
}

fn labels_digest(records: &[Picture]) -> String {
    let labels: Vec<u8> = records.iter().map(|picture| picture.label).collect();
    Digest::of(&labels)
}

/// Returns the name that git would give to a file of these records.
fn blob(records: &[Picture]) -> String {
    let bytes = records.len() * RECORD_BYTES;
    let mut digest = Sha1::new_with_prefix(format!("blob {bytes}\0"));
    for picture in records {
        digest.update([picture.label]);
        digest.update(&picture.channels[..]);
    }
    hexadecimal(&digest.finalize())
}

#[cfg(test)]
mod tests {
    use super::super::PIXELS;
    use super::*;

    fn picture(place: usize) -> Picture {
        Picture {
            place,
            label: (place % 7) as u8,
            channels: Box::new([(place / RECORDS) as u8; 3 * PIXELS]),
        }
    }

    /// Batches as packed by a library that takes them in the order of the published archive: 4, 3,
    /// 2, 5, 1.
    #[test]
    fn batches_in_another_order_are_put_in_order() {
        let train = |batches: &[usize]| {
            let mut pictures = Pictures::default();
            for (place, batch) in batches.iter().enumerate() {
                for index in 0..FIRST {
                    let Picture {
                        label, channels, ..
                    } = picture(batch * RECORDS + index);
                    pictures.push(place * RECORDS + index, label, channels);
                }
            }
            pictures
        };
        let mut published = train(&[0, 1, 2, 3, 4]);
        let sums: [String; BATCHES] =
            std::array::from_fn(|batch| first_digest(of_file(&mut published, batch)).unwrap());
        let sums = sums.each_ref().map(String::as_str);
        assert_eq!(put_in_order_of(&mut published, &sums), None);

        let mut other = train(&[3, 2, 1, 4, 0]);
        assert_eq!(put_in_order_of(&mut other, &sums), Some([3, 2, 1, 4, 0]));
        for picture in other.sorted() {
            let expected = self::picture(picture.place);
            assert_eq!(
                (picture.label, &picture.channels),
                (expected.label, &expected.channels)
            );
        }
        // Neither a repeated batch nor unknown batches are put in order.
        assert_eq!(put_in_order_of(&mut train(&[1, 1, 0, 3, 4]), &sums), None);
        assert_eq!(
            put_in_order_of(&mut train(&[4, 3, 2, 1, 0]), &["none"; BATCHES]),
            None
        );
        // An unknown batch fills the gap.
        let unknown = [sums[0], "none", sums[2], sums[3], sums[4]];
        let order = put_in_order_of(&mut train(&[1, 0, 2, 3, 4]), &unknown);
        assert_eq!(order, Some([1, 0, 2, 3, 4]));
    }

    /// Compared with Python's hashlib, for 1,000 and 1,001 records.
    #[test]
    fn checksums_are_of_labels_and_channels() {
        let records = |count: usize| (0..count).map(picture).collect::<Vec<_>>();
        let first = "551fe5ce2ec810f024d646585c681bb4b6b16264b269a3cb3bf0a0b56bf4f881";
        assert_eq!(first_digest(&records(FIRST)).as_deref(), Some(first));
        assert_eq!(first_digest(&records(FIRST + 1)).as_deref(), Some(first));
        assert_eq!(first_digest(&records(FIRST - 1)), None);
        assert_eq!(
            labels_digest(&records(FIRST)),
            "d743bb866528ea29ecb064a6fde1997e59a8b72a493ee20439874492238e83e5"
        );
    }

    #[test]
    fn a_file_begins_at_its_first_place_and_has_no_gap() {
        let at = |places: &[usize]| places.iter().copied().map(picture).collect::<Vec<_>>();
        let start = first_place(1);
        assert!(in_place(&at(&[start, start + 1, start + 2]), 1));
        assert!(!in_place(&at(&[start, start + 2]), 1));
        assert!(!in_place(&at(&[start + 1, start + 2]), 1));
        assert!(!in_place(&at(&[start, start + 1]), 0));
    }

    #[test]
    fn classes_have_their_published_numbers() {
        for published in &PUBLISHED {
            assert_eq!(published.labels.iter().sum::<usize>(), RECORDS);
        }
        for file in [1, BATCHES] {
            let mut labels = Vec::new();
            for (label, count) in (0_u8..).zip(PUBLISHED[file].labels) {
                labels.resize(labels.len() + count, label);
            }
            let has = |labels: &[u8]| {
                let mut pictures = Pictures::default();
                for (place, &label) in (first_place(file)..).zip(labels) {
                    pictures.push(place, label, Box::new([0; 3 * PIXELS]));
                }
                has_labels(&pictures, file)
            };
            assert!(has(&labels));
            labels[0] = 1;
            assert!(!has(&labels));
        }
    }

    /// Compared with the output of `git hash-object` for a file with this record.
    #[test]
    fn a_blob_is_named_as_git_names_it() {
        let mut picture = Picture {
            place: 0,
            label: 7,
            channels: Box::new([0; 3 * PIXELS]),
        };
        picture.channels[3071] = 255;
        assert_eq!(blob(&[picture]), "ac3acefcdfe5e167866b1121306148ef495a14a0");
    }
}
