//! What runs leave behind that are killed: the limits of cgroups that they have set.

use std::path::Path;

use isotherm_act::News;

use crate::{Notice, Severity};

/// Gives back the limits of cgroups that runs have left which were killed. Runs that live are left alone, and so are
/// limits that somebody else has set since.
///
/// Each run with schemes does it at its start. The notices say what was done.
pub fn restore_limits() -> Vec<Notice> {
    isotherm_act::restore_limits(Path::new("/")).iter().map(notice).collect()
}

/// The notice of what became of a cgroup, or of locked memory.
pub(super) fn notice(news: &News) -> Notice {
    let severity = if news.is_warning { Severity::Warning } else { Severity::Info };
    Notice::new(severity, &news.text)
}
