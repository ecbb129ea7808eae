//! Names of the files of a set.

use crate::locate::{Place, Role};
use crate::tasks::pathfinder::parameters::{Difficulty, Size};

/// A published set: the images of one size and difficulty.
pub(super) struct Set {
    /// Folder of the size, such as `pathfinder32`.
    size: String,
    /// Folder of the difficulty, such as `curv_contour_length_14`.
    difficulty: &'static str,
}

impl Set {
    pub(super) fn new(size: Size, difficulty: Difficulty) -> Set {
        Set {
            size: format!("pathfinder{}", size.side()),
            difficulty: difficulty.folder(),
        }
    }

    /// Describes the set.
    pub(super) fn text(&self) -> String {
        format!(
            "the published set {}/{} (a folder, or an archive that contains it)",
            self.size, self.difficulty
        )
    }

    /// Returns the path of the set and the path inside the set of a file that belongs to it. The
    /// folder or archive that the user named may begin within the release: with the folder of the
    /// difficulty, or with the set's own folders.
    pub(super) fn within<'a>(&self, name: &'a str) -> Option<(&'a str, &'a str)> {
        let folder = format!("{}/{}/", self.size, self.difficulty);
        // The same places as in the name.
        let lower = name.to_ascii_lowercase();
        let starts_a_part = |start: &usize| *start == 0 || name.as_bytes()[start - 1] == b'/';
        let whole = lower
            .rfind(&folder)
            .filter(starts_a_part)
            .map(|start| start + folder.len());
        let below_size = || {
            let rest = lower.strip_prefix(self.difficulty)?;
            rest.starts_with('/').then_some(self.difficulty.len() + 1)
        };
        let own = || {
            let own = ["metadata/", "imgs/"]
                .iter()
                .any(|start| name.starts_with(start));
            own.then_some(0)
        };
        let inside = whole.or_else(below_size).or_else(own)?;
        Some((&name[..inside], &name[inside..]))
    }

    /// Returns the role of a file by its name: lists are the data that a set is found by, and
    /// images are read by the lists.
    pub(super) fn role<'a>(&self, name: &'a str) -> Role<'a> {
        let lower = name.to_ascii_lowercase();
        match self.within(name) {
            Some((prefix, inside)) => match File::of(inside) {
                Ok(File::List(_)) => {
                    let folder = prefix.trim_end_matches('/');
                    Role::Data(Place {
                        form: "lists of images",
                        folder,
                        part: String::new(),
                        part_folder: folder,
                    })
                }
                Ok(File::Image) => Role::Unwanted,
                Err(problem) => Role::Loose(problem),
            },
            None if is_of_published_set(name) => Role::Unwanted,
            None if lower.ends_with(".png") || lower.ends_with(".npy") => {
                Role::Loose("in no published set, but named like a file of one")
            }
            None => Role::Other,
        }
    }

    /// Returns the folder of a set's size, if its path has one.
    pub(super) fn size_folder<'a>(&self, prefix: &'a str) -> Option<&'a str> {
        let lower = prefix.to_ascii_lowercase();
        let size = lower.trim_end_matches('/').strip_suffix(self.difficulty)?;
        let size = size.strip_suffix('/')?;
        size.ends_with(&self.size).then(|| &prefix[..size.len()])
    }
}

/// Returns whether a file lies in the folder of any published set.
fn is_of_published_set(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let folders: Vec<&str> = name.split('/').rev().skip(1).collect();
    folders.windows(2).any(|pair| {
        let is_difficulty = Difficulty::ALL.iter().any(|one| one.folder() == pair[0]);
        let is_size = |size: &Size| pair[1] == format!("pathfinder{}", size.side());
        is_difficulty && Size::ALL.iter().any(is_size)
    })
}

/// A file inside a set.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum File<'a> {
    /// List of images, with its batch: `3` of `metadata/3.npy`.
    List(&'a str),
    /// An image.
    Image,
}

impl File<'_> {
    /// Returns the kind of a file by its path inside the set.
    ///
    /// # Errors
    /// Sets have no such file: the reason.
    pub(super) fn of(inside: &str) -> Result<File<'_>, &'static str> {
        let parts: Vec<&str> = inside.split('/').collect();
        match parts[..] {
            ["metadata", file] => match file.rsplit_once('.') {
                Some((batch, end)) if end.eq_ignore_ascii_case("npy") => Ok(File::List(batch)),
                _ => Err("among the lists of images, but its name does not end in .npy"),
            },
            ["metadata", ..] => Err("below the lists of images, which are metadata/<batch>.npy"),
            ["imgs", _, file] if file.ends_with(".png") => Ok(File::Image),
            ["imgs", ..] => Err("among the images, which are imgs/<batch>/<name>.png"),
            _ => Err(
                "in the folder of a set, which has metadata/<batch>.npy and imgs/<batch>/<name>.png alone",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_by_their_path() {
        let set = Set::new(Size::S32, Difficulty::Hard);
        assert_eq!(
            set.within(
                "lra_release/lra_release/pathfinder32/curv_contour_length_14/imgs/0/sample_0.png"
            ),
            Some((
                "lra_release/lra_release/pathfinder32/curv_contour_length_14/",
                "imgs/0/sample_0.png"
            ))
        );
        for name in [
            "pathfinder32/curv_contour_length_14/metadata/0.npy",
            "curv_contour_length_14/metadata/0.npy",
            "metadata/0.npy",
            "X/Pathfinder32/Curv_Contour_Length_14/metadata/0.npy",
        ] {
            assert!(matches!(set.role(name), Role::Data(_)), "{name}");
        }
        for name in [
            "xpathfinder32/curv_contour_length_14/metadata/0.npy",
            "pathfinder32/curv_baseline/metadata/0.npy",
            "pathfinder32/curv_contour_length_14",
            "curv_contour_length_14x/metadata/0.npy",
            "x/metadata/0.npy",
        ] {
            assert_eq!(set.within(name), None, "{name}");
        }
    }

    #[test]
    fn lists_and_images_are_told_from_others() {
        assert_eq!(File::of("metadata/3.npy"), Ok(File::List("3")));
        assert_eq!(File::of("imgs/3/sample_0.png"), Ok(File::Image));
        for other in [
            "metadata/3.txt",
            "metadata/more/3.npy",
            "imgs/sample_0.png",
            "imgs/3/more/sample_0.png",
            "imgs/3/sample_0.jpg",
            "more/3.npy",
        ] {
            assert!(File::of(other).is_err(), "{other}");
        }
    }

    #[test]
    fn sets_of_other_sizes_and_difficulties_are_known() {
        let set = Set::new(Size::S32, Difficulty::Hard);
        for name in [
            "pathfinder32/curv_baseline/imgs/0/sample_0.png",
            "x/pathfinder128/curv_contour_length_14/metadata/0.npy",
            "x/PathFinder128/curv_contour_length_14/metadata/0.npy",
        ] {
            assert_eq!(set.role(name), Role::Unwanted, "{name}");
        }
        let other = "pathfinder32/curv_contour_length_15/metadata/0.npy";
        assert!(matches!(set.role(other), Role::Loose(_)));
        assert_eq!(
            set.size_folder("x/pathfinder32/curv_contour_length_14/"),
            Some("x/pathfinder32")
        );
        assert_eq!(
            set.size_folder("X/Pathfinder32/Curv_Contour_Length_14/"),
            Some("X/Pathfinder32")
        );
        assert_eq!(set.size_folder("curv_contour_length_14/"), None);
        assert_eq!(set.size_folder(""), None);
    }
}
