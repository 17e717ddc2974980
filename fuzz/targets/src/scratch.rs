//! Files for readers that take a path.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A directory with one file for the input. It is in memory where the system has such a file system.
pub(crate) struct Scratch {
    directory: TempDir,
    input: PathBuf,
}

impl Scratch {
    /// An empty directory. Links are to be made to `input`.
    pub(crate) fn new(input: &str) -> Self {
        let in_memory = Path::new("/dev/shm");
        let directory = if in_memory.is_dir() { tempfile::tempdir_in(in_memory) } else { tempfile::tempdir() };
        let directory = directory.expect("a temporary directory can be made");
        let input = directory.path().join(input);
        Self { directory, input }
    }

    /// A path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Makes `name` a link to the input.
    pub(crate) fn link(&self, name: &str) {
        let link = self.path(name);
        fs::create_dir_all(link.parent().expect("a path in a directory has a parent")).expect("it can be written");
        std::os::unix::fs::symlink(&self.input, link).expect("the directory can be written");
    }

    /// The input file, which holds `data`.
    pub(crate) fn input(&self, data: &[u8]) -> &Path {
        fs::write(&self.input, data).expect("the directory can be written");
        &self.input
    }
}
