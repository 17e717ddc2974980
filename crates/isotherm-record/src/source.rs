//! Where a recording is read from.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_schema::SchemaRef;

/// Where rows are read from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) file: Arc<File>,
    pub(crate) path: Arc<Path>,
    pub(crate) format: u64,
    /// The columns of the file.
    pub(crate) schema: SchemaRef,
    /// The byte after the header.
    pub(crate) start: u64,
    /// The byte after the last whole message with rows.
    pub(crate) end: u64,
}
