//! Where a recording is read from.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_schema::Fields;

use crate::ahead::Tail;
use crate::limits::Limits;

/// Where rows are read from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) file: Arc<File>,
    /// The end of the file, if its recorder may replace it.
    pub(crate) tail: Arc<Tail>,
    pub(crate) path: Arc<Path>,
    /// How much memory its parts may take.
    pub(crate) limits: Limits,
    /// The columns of the file.
    pub(crate) fields: Fields,
    /// Where the whole messages are, as ranges of bytes. Between two ranges the file is damaged.
    pub(crate) spans: Arc<[Range<u64>]>,
    /// What is passed over within these.
    pub(crate) replaced: Arc<[Range<u64>]>,
}
