//! Gives back the limits of cgroups that a run of isotherm was killed with.

use std::path::Path;

use isotherm_kernel::cgroup::{CgroupFiles, CgroupMemory, Hierarchy, NoMemoryCgroup};

use super::journal::{LeftJournal, Noted};
use super::words;
use crate::news::News;

/// Gives back the limits of cgroups that runs of isotherm have left which were killed, and says what was done. A limit
/// that somebody else has set since stays. `root` stands for `/`.
///
/// Runs that live are left alone. What cannot be given back now is tried again at the next call.
pub fn restore_limits(root: &Path) -> Vec<News> {
    let (journals, lost) = LeftJournal::all(root);
    let mut news: Vec<News> = lost.into_iter().map(News::warning).collect();
    if journals.is_empty() {
        return news;
    }
    let hierarchy = Hierarchy::find(root).map_err(NoMemoryCgroup::from);
    for journal in journals {
        let mut is_done = true;
        if journal.is_of_this_boot() {
            for noted in &journal.contents.limits {
                let restored = match &hierarchy {
                    Ok(hierarchy) => restore(hierarchy, noted),
                    Err(error) => Err(error.to_string()),
                };
                match restored {
                    Ok(said) => news.extend(said),
                    Err(why) => {
                        is_done = false;
                        let Noted { path, file, before, .. } = noted;
                        let (name, before) = (file.name(), words(*before));
                        news.push(News::warning(format!(
                            "{name} of {path} cannot be made {before} again, as it was before an isotherm that was \
                             killed: {why}"
                        )));
                    }
                }
            }
            for line in &journal.contents.unreadable {
                is_done = false;
                news.push(News::warning(format!(
                    "{}: a line is no limit: {line:?} (look at the limits of the cgroup, then remove the file)",
                    journal.path().display()
                )));
            }
        }
        if is_done {
            journal.remove();
        }
    }
    news
}

/// Gives back the limit of a cgroup, if it is one that isotherm has set. Returns what the user must know.
fn restore(hierarchy: &Hierarchy, noted: &Noted) -> Result<Option<News>, String> {
    let Noted { path, inode, file, before, ours } = noted;
    let cgroup = match CgroupMemory::open(hierarchy, path) {
        Ok(cgroup) => cgroup,
        // Its limits are gone with it.
        Err(NoMemoryCgroup::Gone { .. } | NoMemoryCgroup::NoController { .. }) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let is_same = cgroup.path() == path && cgroup.files().inode().is_ok_and(|found| found == *inode);
    if !is_same {
        return Ok(None);
    }
    let found = match cgroup.limit(*file) {
        Ok(found) => found,
        Err(_) if cgroup.is_gone() => return Ok(None),
        Err(error) => return Err(format!("it cannot be read: {error}")),
    };
    if found == *before {
        return Ok(None);
    }
    let (name, before_words, found_words) = (file.name(), words(*before), words(found));
    if !ours.contains(&found) {
        return Ok(Some(News::warning(format!(
            "{name} of {path} is left at {found_words}: somebody else has set it, after an isotherm that was killed"
        ))));
    }
    cgroup.set_limit(*file, *before).map_err(|error| error.to_string())?;
    Ok(Some(News::info(format!(
        "{name} of {path} is {before_words} again: an isotherm that was killed had left {found_words}"
    ))))
}
