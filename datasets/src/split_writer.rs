//! Writer of the rows of a build to the three files of an entry.
//!
//! A safetensors file starts with a header that holds the sizes of its columns, which are only
//! known at the end. So tokens, and labels of positions, first go to one temporary file per split
//! and column (memory holds nine bytes per row: label and end offset), and [`SplitWriter::finish`]
//! assembles the final files from them.

use std::collections::HashMap;
use std::fs;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use disk::Output;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use crate::error::{Error, Result, io};
use crate::files;
use crate::manifest::{Fact, PerSplit, SplitManifest, SplitName};
use crate::{Dense, DenseLabels, DenseRow, Digest, Progress, Shape, TaskInfo};

/// Writer that takes rows in any order of splits, and collects remarks for the manifest.
pub struct SplitWriter<'a> {
    info: &'static TaskInfo,
    max_length: usize,
    dense: Option<Dense>,
    folder: PathBuf,
    columns: PerSplit<Columns>,
    facts: Vec<Fact>,
    notes: Vec<String>,
    altered: Vec<String>,
    partial: bool,
    distinct: bool,
    progress: &'a dyn Progress,
}

/// Remarks of a builder about its data, in addition to the rows.
pub(crate) struct Remarks {
    pub facts: Vec<Fact>,
    pub notes: Vec<String>,
    pub altered: Vec<String>,
    pub partial: bool,
    pub distinct: bool,
}

struct Columns {
    towers: Vec<Spool>,
    labels: Vec<u8>,
    /// Columns of targets and groups.
    dense: Option<[Plain; 2]>,
    /// Number of positions with each label.
    dense_labels: Vec<u64>,
}

/// Temporary file of one column.
struct Plain {
    path: PathBuf,
    file: BufWriter<Output>,
}

struct Spool {
    plain: Plain,
    /// Offsets into the spool: row `i` is bytes `offsets[i]..offsets[i + 1]`.
    offsets: Vec<u64>,
}

impl<'a> SplitWriter<'a> {
    /// Creates a writer in `folder`, which exists and is empty; it works until `progress` is
    /// stopped.
    pub(crate) fn create(
        folder: &Path,
        info: &'static TaskInfo,
        shape: &Shape,
        progress: &'a dyn Progress,
    ) -> Result<SplitWriter<'a>> {
        if let Some(kind) = shape
            .dense
            .as_ref()
            .filter(|kind| info.towers != 1 || !kind.fits_bytes())
        {
            return Err(Error::Builder {
                task: info.name,
                problem: format!("labels at positions that no row can have: {kind:?}"),
            });
        }
        let columns = |split: SplitName| {
            let plain =
                |name: &str| Plain::create(folder.join(format!("{}.{name}.spool", split.name())));
            let spool = |tower: usize| {
                Ok(Spool {
                    plain: plain(&tower.to_string())?,
                    offsets: vec![0],
                })
            };
            let dense = match &shape.dense {
                Some(_) => {
                    let [targets, groups] = DENSE_COLUMNS.map(plain);
                    Some([targets?, groups?])
                }
                None => None,
            };
            let classes = shape.dense.as_ref().map_or(0, |dense| dense.classes);
            Ok(Columns {
                towers: (0..info.towers).map(spool).collect::<Result<_>>()?,
                labels: Vec::new(),
                dense,
                dense_labels: vec![0; classes],
            })
        };
        Ok(SplitWriter {
            info,
            max_length: shape.max_length,
            dense: shape.dense.clone(),
            folder: folder.to_owned(),
            columns: PerSplit::try_new(columns)?,
            facts: Vec::new(),
            notes: Vec::new(),
            altered: Vec::new(),
            partial: false,
            distinct: false,
            progress,
        })
    }

    /// Adds one example: a byte sequence per tower, and its label.
    ///
    /// # Errors
    /// [`Error::Io`] when the disk is full; [`Error::Builder`] when the row does not fit the task's
    /// description (number of towers, length, vocabulary, classes); [`Error::Interrupted`] when the
    /// build should end.
    pub fn row(&mut self, split: SplitName, towers: &[&[u8]], label: u8) -> Result<()> {
        self.add(split, towers, label, None)
    }

    /// Adds one example with labels at its positions, as the task's shape declares them.
    ///
    /// # Errors
    /// Errors of [`row`](Self::row); [`Error::Builder`] too where the labels are not as declared.
    pub fn dense_row(
        &mut self,
        split: SplitName,
        tokens: &[u8],
        label: u8,
        positions: &DenseRow,
    ) -> Result<()> {
        self.add(split, &[tokens], label, Some(positions.labels()))
    }

    fn add(
        &mut self,
        split: SplitName,
        towers: &[&[u8]],
        label: u8,
        positions: Option<DenseLabels<'_>>,
    ) -> Result<()> {
        self.progress.check()?;
        self.check(towers, label)?;
        self.check_dense(towers, positions)?;
        let columns = self.columns.get_mut(split);
        if let (Some([targets, groups]), Some(labels)) = (&mut columns.dense, positions) {
            targets.write(labels.targets)?;
            groups.write(labels.groups)?;
            for (_, target, _) in labels.iter() {
                columns.dense_labels[usize::from(target)] += 1;
            }
        }
        for (spool, tokens) in columns.towers.iter_mut().zip(towers) {
            spool.plain.write(tokens)?;
            let end = spool.offsets[spool.offsets.len() - 1] + tokens.len() as u64;
            spool.offsets.push(end);
        }
        columns.labels.push(label);
        Ok(())
    }

    /// Adds a remark for the user to the manifest.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(disk::escape(&text.into()));
    }

    /// Records a fact about the raw files, which is later compared with
    /// [`Task::known`](crate::Task::known).
    pub fn fact(&mut self, name: impl Into<String>, value: impl ToString) {
        self.facts.push(Fact::new(name, value));
    }

    /// Marks the data as smaller than what the source publishes.
    pub fn mark_partial(&mut self) {
        self.partial = true;
    }

    /// Marks the data as altered, for contradictions that no fact with a known value covers. `how`
    /// is a sentence on the difference between the raw files and the published ones.
    pub fn mark_altered(&mut self, how: impl Into<String>) {
        self.altered.push(how.into());
    }

    /// Promises that no row occurs twice, within a split or between them; verification checks it.
    pub fn promise_distinct(&mut self) {
        self.distinct = true;
    }

    fn check(&self, towers: &[&[u8]], label: u8) -> Result<()> {
        let info = self.info;
        let problem = if towers.len() != info.towers {
            format!("{} sequences instead of {}", towers.len(), info.towers)
        } else if usize::from(label) >= info.classes {
            format!("label {label} of {} classes", info.classes)
        } else if let Some(tokens) = towers.iter().find(|tokens| tokens.len() > self.max_length) {
            format!("{} tokens, more than {}", tokens.len(), self.max_length)
        } else if info.first_id == 0
            && let Some(tokens) = towers.iter().find(|tokens| tokens.len() != self.max_length)
        {
            format!(
                "{} tokens instead of {}: without an id for padding (first_id = 0) all rows are of one length",
                tokens.len(),
                self.max_length
            )
        } else if let Some(token) = towers
            .iter()
            .filter_map(|tokens| too_large(tokens, info))
            .next()
        {
            format!("token {token} of a vocabulary of {}", info.vocabulary)
        } else {
            return Ok(());
        };
        Err(Error::Builder {
            task: info.name,
            problem,
        })
    }

    fn check_dense(&self, towers: &[&[u8]], positions: Option<DenseLabels<'_>>) -> Result<()> {
        let length = towers.first().map_or(0, |tokens| tokens.len());
        let problem = match (&self.dense, positions) {
            (None, None) => None,
            (None, Some(_)) => Some("labels at positions that were not announced".to_owned()),
            (Some(_), None) => Some("no labels at positions".to_owned()),
            (Some(_), Some(labels))
                if [labels.targets, labels.groups].map(<[u8]>::len) != [length; 2] =>
            {
                Some(format!(
                    "labels at positions for other than {length} tokens"
                ))
            }
            (Some(kind), Some(labels)) => kind.problem(labels),
        };
        match problem {
            Some(problem) => Err(Error::Builder {
                task: self.info.name,
                problem,
            }),
            None => Ok(()),
        }
    }

    /// Returns the first split without a row, if there is one.
    pub(crate) fn empty(&self) -> Option<SplitName> {
        SplitName::ALL
            .into_iter()
            .find(|split| self.columns.get(*split).labels.is_empty())
    }

    /// Assembles, hashes and syncs the three files, and removes the spools.
    pub(crate) fn finish(mut self) -> Result<(PerSplit<SplitManifest>, Remarks)> {
        let splits = PerSplit::try_new(|split| {
            let columns = self.columns.get_mut(split);
            if columns.labels.is_empty() {
                return Err(Error::Builder {
                    task: self.info.name,
                    problem: format!("no rows in {}", split.name()),
                });
            }
            let path = self.folder.join(split.file_name());
            columns.assemble(&path, self.info.classes, self.progress)
        })?;
        let remarks = Remarks {
            facts: self.facts,
            notes: self.notes,
            altered: self.altered,
            partial: self.partial,
            distinct: self.distinct,
        };
        Ok((splits, remarks))
    }
}

/// Returns the largest token of a row, if it is outside the vocabulary.
pub(crate) fn too_large(tokens: &[u8], info: &TaskInfo) -> Option<u8> {
    let largest = tokens.iter().copied().max()?;
    (usize::from(largest) + info.first_id as usize >= info.vocabulary).then_some(largest)
}

impl Plain {
    fn create(path: PathBuf) -> Result<Plain> {
        let file = BufWriter::with_capacity(1 << 20, files::output(&path)?);
        Ok(Plain { path, file })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all(bytes);
        written.map_err(io("write", &self.path))
    }

    /// Passes the content of the file to `write`, and removes the file.
    fn drain(
        &mut self,
        progress: &dyn Progress,
        mut write: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.file.flush().map_err(io("write", &self.path))?;
        let mut input = files::open(&self.path)?;
        let mut buffer = vec![0; 1 << 20];
        loop {
            progress.check()?;
            let count = input.read(&mut buffer).map_err(io("read", &self.path))?;
            if count == 0 {
                break;
            }
            write(&buffer[..count])?;
        }
        fs::remove_file(&self.path).map_err(io("remove", &self.path))
    }
}

/// Names of the columns of labels at positions: classes, groups.
pub(crate) const DENSE_COLUMNS: [&str; 2] = ["targets", "groups"];

/// Names of the columns of one tower: tokens, offsets.
pub(crate) fn column_names(tower: usize) -> (String, String) {
    match tower {
        0 => ("tokens".to_owned(), "offsets".to_owned()),
        _ => (
            format!("tokens.{}", tower + 1),
            format!("offsets.{}", tower + 1),
        ),
    }
}

impl Columns {
    fn assemble(
        &mut self,
        path: &Path,
        classes: usize,
        progress: &dyn Progress,
    ) -> Result<SplitManifest> {
        let rows = self.labels.len();
        let header = self.header(rows, path)?;
        let file = files::output(path)?;
        let mut output = Hashed {
            file: BufWriter::with_capacity(1 << 20, file),
            digest: Digest::default(),
            bytes: 0,
        };
        let mut write = |bytes: &[u8]| output.write(bytes).map_err(io("write", path));
        write(&header)?;
        for spool in &self.towers {
            for offset in &spool.offsets {
                write(&offset.to_le_bytes())?;
            }
        }
        for spool in &mut self.towers {
            spool.plain.drain(progress, &mut write)?;
        }
        write(&self.labels)?;
        for column in self.dense.iter_mut().flatten() {
            column.drain(progress, &mut write)?;
        }
        output.file.flush().map_err(io("write", path))?;
        output.file.get_ref().sync().map_err(io("sync", path))?;

        let mut labels = vec![0; classes];
        for &label in &self.labels {
            labels[usize::from(label)] += 1;
        }
        Ok(SplitManifest {
            rows,
            labels,
            dense_labels: self.dense_labels.clone(),
            bytes: output.bytes,
            sha256: output.digest.hex(),
        })
    }

    /// Returns the eight bytes of length and the JSON header. Offsets come first, right after a
    /// header padded to a multiple of eight bytes, so that they are aligned in a mapped file.
    fn header(&self, rows: usize, path: &Path) -> Result<Vec<u8>> {
        let mut tensors = Vec::new();
        let mut position = 0;
        let mut add = |name: String, dtype: Dtype, count: usize, bytes: usize| {
            let tensor = TensorInfo {
                dtype,
                shape: vec![count],
                data_offsets: (position, position + bytes),
            };
            position += bytes;
            tensors.push((name, tensor));
        };
        for tower in 0..self.towers.len() {
            add(column_names(tower).1, Dtype::U64, rows + 1, 8 * (rows + 1));
        }
        for (tower, spool) in self.towers.iter().enumerate() {
            let tokens = spool.offsets[rows] as usize;
            add(column_names(tower).0, Dtype::U8, tokens, tokens);
        }
        add("labels".to_owned(), Dtype::U8, rows, rows);
        if self.dense.is_some() {
            let tokens = self.towers.first().map_or(0, |spool| spool.offsets[rows]) as usize;
            for name in DENSE_COLUMNS {
                add(name.to_owned(), Dtype::U8, tokens, tokens);
            }
        }

        let invalid = |problem: String| io("write", path)(std::io::Error::other(problem));
        let info = HashMap::from([("format".to_owned(), "lra-store-1".to_owned())]);
        let metadata =
            Metadata::new(Some(info), tensors).map_err(|error| invalid(error.to_string()))?;
        let mut json = serde_json::to_vec(&metadata).map_err(|error| invalid(error.to_string()))?;
        json.resize(json.len().next_multiple_of(8), b' ');
        let mut header = (json.len() as u64).to_le_bytes().to_vec();
        header.append(&mut json);
        Ok(header)
    }
}

struct Hashed {
    file: BufWriter<Output>,
    digest: Digest,
    bytes: u64,
}

impl Hashed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}
