//! Search for a task's published files under the path that the user gave.

mod known;
mod parquet;
mod survey;

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use crate::archive::folder::{Found, files_below, found_below};
use crate::archive::{ARCHIVES, Contents, Member, Raw, has_archive_name, kind_of, unpacked_name};
use crate::command::data_flag;
use crate::error::{Error, Result};
use crate::files::relative_name;
use crate::{Progress, Source, Task, TaskInfo};

pub(crate) use self::known::is_documentation;
pub(crate) use self::survey::{Place, Role, Survey, folder_in_words, folder_of};

/// Form of the published files.
#[derive(Debug)]
pub(crate) enum Form {
    /// Files in a folder or an archive, read by [`Wanted::members`], and the survey of what lies
    /// beside that archive.
    Members(Raw, Survey),
    /// Parquet files of train and test.
    Parquet {
        /// Files of train, in the order of names.
        train: Vec<PathBuf>,
        /// Files of test, in the order of names.
        test: Vec<PathBuf>,
        /// Notes about other files among them.
        notes: Vec<String>,
    },
}

/// Files that a task needs.
pub(crate) struct Wanted<'a> {
    /// Description of the task.
    pub(crate) info: &'static TaskInfo,
    /// Description of the files.
    pub(crate) what: &'a str,
    /// Name of the published archive.
    pub(crate) archive: &'static str,
    /// Names of archives in which the same data is published in other forms.
    pub(crate) other_archives: &'static [&'static str],
    /// Function that returns the role of a file of a folder or archive.
    pub(crate) role: &'a dyn for<'n> Fn(&'n str) -> Role<'n>,
    /// True if the data lies in a folder, and never in folders below it.
    pub(crate) flat: bool,
    /// True if the reader chooses among several copies of the data.
    pub(crate) copies: bool,
    /// True if the reader unpacks files that are packed one by one.
    pub(crate) packed: bool,
    /// True if the task reads parquet files too.
    pub(crate) parquet: bool,
}

impl Wanted<'_> {
    /// Passes every file of data in `raw` to `visit`, as [`Raw::members`] does. Returns the survey
    /// of the others, added to `survey`.
    ///
    /// # Errors
    /// Errors of [`Raw::members`]; [`Error::Missing`] where there is no data; [`Error::File`] for a
    /// file that looks like data and is none.
    pub(crate) fn members(
        &self,
        raw: &Raw,
        survey: Survey,
        doing: &str,
        progress: &dyn Progress,
        visit: &mut dyn FnMut(Member<'_>) -> Result<()>,
    ) -> Result<Survey> {
        let survey = RefCell::new(survey);
        let contents = raw.members(
            doing,
            progress,
            &|seen| match seen.is_link {
                true => {}
                false => survey.borrow_mut().see(self, seen),
            },
            &|name| self.fits(name),
            &mut |member| {
                survey.borrow_mut().admit(self, &member)?;
                visit(member)
            },
        )?;
        let mut survey = survey.into_inner();
        if contents.wanted == 0 {
            return Err(self.missing(raw.path(), Some(&contents)));
        }
        survey.check_links(self, raw, &contents)?;
        survey.check(self, raw)?;
        Ok(survey)
    }

    /// Returns whether a file is named like a published archive.
    fn is_published(&self, name: &str) -> bool {
        let file = name.rsplit('/').next().unwrap_or(name);
        let mut names = self.other_archives.iter().chain([&self.archive]);
        names.any(|archive| file.eq_ignore_ascii_case(archive))
    }

    /// Returns whether a file is the data in another form by its name: a published archive, or a
    /// parquet file of a split.
    fn is_other_form(&self, name: &str) -> bool {
        self.is_published(name) || self.parquet && parquet::split_of(name).is_some()
    }

    /// Returns whether a file is data, or takes its place.
    fn fits(&self, name: &str) -> bool {
        matches!((self.role)(name), Role::Data(_) | Role::Stray(_))
    }

    /// Returns the name of a packed file once unpacked, if the reader unpacks it.
    fn unpacked<'n>(&self, name: &'n str) -> Option<&'n str> {
        unpacked_name(name).filter(|_| self.packed)
    }

    /// Returns whether a file fits, as it is or once unpacked.
    fn takes(&self, name: &str) -> bool {
        self.fits(name) || self.unpacked(name).is_some_and(|name| self.fits(name))
    }

    /// Returns the role of a file, as it is or once unpacked.
    fn role_of<'n>(&self, name: &'n str) -> Role<'n> {
        let unpacked = self.unpacked(name).map(|name| (self.role)(name));
        match ((self.role)(name), unpacked) {
            (_, Some(data @ Role::Data(_))) => data,
            (Role::Other, Some(role)) => role,
            (role, _) => role,
        }
    }

    /// Returns the error for missing files.
    pub(crate) fn missing(&self, path: &Path, contents: Option<&Contents>) -> Error {
        let there = contents.map(|contents| {
            let unread = match (self.parquet, path.is_file()) {
                _ if !contents.has_parquet => "",
                (true, true) => "; parquet files are read from a folder, not from an archive",
                (true, false) => {
                    "; parquet files are read where some are of train and some of test by their names"
                }
                (false, _) => "; parquet files are not read by this task",
            };
            format!("{}{unread}", contents.text())
        });
        self.missing_in(path, there)
    }

    /// Returns the error for missing files, with the words for what is there.
    fn missing_in(&self, path: &Path, there: Option<String>) -> Error {
        let (name, flag) = (self.info.name, data_flag());
        Error::Missing {
            what: self.what.to_owned(),
            path: path.to_owned(),
            there,
            command: format!(
                "lra data fetch {name}{flag} (or name a copy: lra data make {name}{flag} --from FOLDER or ARCHIVE)"
            ),
            stand_in: stand_in(self.info),
        }
    }
}

/// Finds the published files: `raw` is an archive, or a folder with the files themselves in it or
/// below it, else with parquet files, else with an archive.
///
/// # Errors
/// [`Error::Missing`], naming the wanted files, the files found, and the command that gets the
/// wanted ones; [`Error::File`] for any other kind of file.
pub(crate) fn locate(raw: &Path, wanted: &Wanted<'_>, progress: &dyn Progress) -> Result<Form> {
    let folder = match Raw::at(raw)? {
        None => {
            let there = match raw.is_symlink() {
                true => "nothing: the path is a link to a path that does not exist",
                false => "nothing: the path does not exist",
            };
            return Err(wanted.missing_in(raw, Some(there.to_owned())));
        }
        Some(archive @ Raw::Archive(_)) => return Ok(Form::Members(archive, Survey::default())),
        Some(Raw::Folder(folder)) => folder,
        Some(Raw::Parquet(file)) if wanted.parquet => {
            let problem = "one parquet file: name the folder that has those of train and of test";
            let problem = problem.to_owned();
            return Err(Error::File { file, problem });
        }
        Some(Raw::Packed(file)) => {
            let problem = format!(
                "one packed file and no archive: name the folder or the archive with {}",
                wanted.what
            );
            return Err(Error::File { file, problem });
        }
        Some(Raw::Parquet(file) | Raw::File(file)) => {
            let name = relative_name(raw.parent().unwrap_or(raw), raw);
            let problem = match wanted.fits(&name) {
                true => format!(
                    "one of the files alone: name the folder with {}",
                    wanted.what
                ),
                false => format!(
                    "neither a folder nor {ARCHIVES} with {}, but {}",
                    wanted.what,
                    kind_of(&file)?
                ),
            };
            return Err(Error::File { file, problem });
        }
    };
    let mut contents = Contents::default();
    // Of files that are neither data nor parquet files.
    let mut survey = Survey::default();
    let files = found_below(&folder, &mut |found| {
        let (name, is_link) = match found {
            Found::File(name) => (name, false),
            Found::BrokenLink(name) => (name, true),
            Found::PassedOver(name) => {
                contents.pass_over(name);
                return false;
            }
        };
        let taken = wanted.takes(name);
        let is_parquet = wanted.parquet && parquet::stem(name).is_some();
        contents.add(name, taken);
        if is_link {
            contents.add_link(name);
        }
        if wanted.parquet && !taken && !is_parquet {
            match is_link {
                true => survey.see_link(wanted, name),
                false => survey.see(wanted, name),
            }
        }
        taken || has_archive_name(name) || is_parquet
    })?;
    if contents.wanted > 0 {
        return Ok(Form::Members(Raw::Folder(folder), Survey::default()));
    }
    if wanted.parquet
        && let Some(form) = parquet::forms_in(wanted.info, &folder, &files, &survey)?
    {
        return Ok(form);
    }
    archive_in(&folder, &files, wanted, &contents, progress)
}

/// Returns whether a file is data by its role, as it is or once unpacked.
pub(crate) fn is_data<'n>(name: &'n str, role: impl Fn(&'n str) -> Role<'n>) -> bool {
    let names = [Some(name), unpacked_name(name)].into_iter().flatten();
    names
        .map(role)
        .any(|role| matches!(role, Role::Data(_) | Role::Stray(_)))
}

/// Returns the files below a folder that the data of a task are made from, in the order of paths:
/// those that it reads, else parquet files and archives that are not of another task.
///
/// # Errors
/// A folder cannot be read, or the folders are too many or nested too deeply.
pub(crate) fn sources_below(folder: &Path, task: &dyn Task) -> Result<Vec<PathBuf>> {
    let own = task.info().name;
    let mut forms: [Vec<PathBuf>; 2] = Default::default();
    for path in files_below(folder, &mut |_| true)? {
        let name = relative_name(folder, &path);
        let form = match () {
            () if task.reads(&name) => 0,
            () if known::is_of_another(own, &name) => continue,
            () if parquet::stem(&name).is_some() || has_archive_name(&name) => 1,
            () => continue,
        };
        forms[form].push(path);
    }
    let found = forms.into_iter().find(|files| !files.is_empty());
    Ok(found.unwrap_or_default())
}

/// Returns the archive in a folder: the one with the published name, else the only one, else the
/// only one that holds the files.
fn archive_in(
    folder: &Path,
    files: &[PathBuf],
    wanted: &Wanted<'_>,
    contents: &Contents,
    progress: &dyn Progress,
) -> Result<Form> {
    let mut archives = Vec::new();
    let mut published = Vec::new();
    let mut others = Vec::new();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match Raw::at(path)? {
            Some(archive @ Raw::Archive(_)) if name.eq_ignore_ascii_case(wanted.archive) => {
                published.push(archive);
            }
            Some(archive @ Raw::Archive(_)) => archives.push(archive),
            Some(Raw::File(path)) if has_archive_name(&name) => others.push(path),
            // A file that is packed alone may well have nothing to do with the task.
            Some(Raw::Packed(path)) if wanted.is_published(&name) => others.push(path),
            _ => {}
        }
    }
    if !published.is_empty() {
        archives = published;
    } else if archives.len() > 1 {
        let mut having = Vec::new();
        for archive in archives {
            if archive.holds(progress, &|name| wanted.fits(name))? {
                having.push(archive);
            }
        }
        archives = having;
    }
    match (archives.len(), others.pop()) {
        (0, None) => Err(wanted.missing(folder, Some(contents))),
        (0, Some(file)) => {
            let problem = format!("not {ARCHIVES} but {}: remove it", kind_of(&file)?);
            Err(Error::File { file, problem })
        }
        (1, _) => {
            let archive = archives.remove(0);
            let mut survey = Survey::default();
            for path in files.iter().filter(|path| *path != archive.path()) {
                survey.see_beside(wanted, &relative_name(folder, path));
            }
            Ok(Form::Members(archive, survey))
        }
        _ => {
            let names: Vec<_> = archives
                .iter()
                .map(|one| relative_name(folder, one.path()))
                .collect();
            let problem = format!(
                "several archives with {}: {}; name the one to read with --from",
                wanted.what,
                names.join(", ")
            );
            let file = folder.to_owned();
            Err(Error::File { file, problem })
        }
    }
}

/// Returns the flag for a source that needs no files.
pub(crate) fn stand_in(info: &TaskInfo) -> Option<String> {
    let mut sources = info.sources.iter();
    match sources.find(|source| !source.reads_files())? {
        Source::Generated => Some("--source generated, the same task drawn here".to_owned()),
        other => Some(format!("--source {other}")),
    }
}
