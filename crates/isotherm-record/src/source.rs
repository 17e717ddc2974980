//! Where a recording is read from.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::WITH_ACTIVITIES;

/// Where rows are read from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) file: Arc<File>,
    pub(crate) path: Arc<Path>,
    pub(crate) format: u64,
    /// The byte after the header.
    pub(crate) start: u64,
    /// The byte after the last whole message with rows.
    pub(crate) end: u64,
}

impl Source {
    /// Whether it has room for activities.
    pub(crate) fn has_activities(&self) -> bool {
        self.format >= WITH_ACTIVITIES
    }
}
