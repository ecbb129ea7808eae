//! `lra publish`.

use std::path::PathBuf;

use clap::Args;

use super::data::DataPlace;

const EXAMPLES: &str = "\
Examples:
  lra publish site                         published figures, and the table of the small protocol
  lra publish site runs                    with the runs under runs/ and the figures imported there
  lra publish site runs --predictions      and with what their weights get wrong
  lra publish site old theirs.csv          with several folders and files of records
  lra publish site --force                 replace a folder that is not a site";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PublishArgs {
    /// Folder to write. A site that was written there before is replaced as a whole
    pub folder: PathBuf,
    /// Folders of run folders, and files of records (see `lra merge`), to show beside the published
    /// figures and the table of the small protocol
    #[arg(value_name = "FOLDER|FILE")]
    pub sources: Vec<PathBuf>,
    /// Score saved weights again, and add a page for each run: accuracy by property and class, and
    /// the examples that it gets most wrong. They become public with the site
    #[arg(long)]
    pub predictions: bool,
    #[command(flatten)]
    pub place: DataPlace,
    /// Replace a folder that is not a site; it moves to FOLDER.old
    #[arg(long)]
    pub force: bool,
    /// Fail if a folder holds a damaged record
    #[arg(long)]
    pub strict: bool,
}
