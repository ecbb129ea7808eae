//! Names of the files of a set.

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
        let starts_a_part = |start: &usize| *start == 0 || name.as_bytes()[start - 1] == b'/';
        let whole = name
            .rfind(&folder)
            .filter(starts_a_part)
            .map(|start| start + folder.len());
        let below_size = || {
            let rest = name.strip_prefix(self.difficulty)?;
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

    /// Returns whether a file is a list of the set's images.
    pub(super) fn has_list(&self, name: &str) -> bool {
        self.within(name)
            .is_some_and(|(_, inside)| inside.starts_with("metadata/"))
    }
}

/// Returns the batch that a file inside a set lists: `3` of `metadata/3.npy`; `None` for other
/// files.
///
/// # Errors
/// A file among the lists is not a list.
pub(super) fn batch_of(inside: &str) -> Result<Option<&str>, String> {
    let Some(file) = inside.strip_prefix("metadata/") else {
        return Ok(None);
    };
    match file.rsplit_once('.') {
        Some((batch, end)) if end.eq_ignore_ascii_case("npy") => Ok(Some(batch)),
        _ => Err("among the lists of images, but its name does not end in .npy".to_owned()),
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
        ] {
            assert!(set.has_list(name), "{name}");
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
    fn lists_are_told_from_others() {
        assert_eq!(batch_of("metadata/3.npy"), Ok(Some("3")));
        assert_eq!(batch_of("imgs/3/sample_0.png"), Ok(None));
        assert!(batch_of("metadata/3.txt").is_err());
    }
}
