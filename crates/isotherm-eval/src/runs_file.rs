//! The file of runs: a line of JSON for each, added when it ends. A last line that is torn is passed over.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use isotherm_input::Input;
use isotherm_output::Output;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::EvalError;

/// The name of the file.
pub(crate) const RUNS: &str = "runs.jsonl";

/// The most bytes of a file of results: a run has about 1 KB.
pub(crate) const LIMIT: u64 = 1 << 30;

/// Reads all whole lines; none if there is no file.
pub(crate) fn read<T: DeserializeOwned>(directory: &Path) -> Result<Vec<T>, EvalError> {
    let path = directory.join(RUNS);
    let bytes = if path.exists() { Input::new(&path).limited_to(LIMIT).bytes()? } else { Vec::new() };
    let lines = bytes[..whole(&bytes)].split_inclusive(|byte| *byte == b'\n').enumerate();
    lines
        .map(|(nth, line)| {
            let wrong = |source| EvalError::Results { path: path.clone(), line: nth + 1, source };
            serde_json::from_slice(line).map_err(wrong)
        })
        .collect()
}

/// The bytes of whole lines: what follows the last line break was torn.
fn whole(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

/// A file that runs are added to.
#[derive(Debug)]
pub(crate) struct RunsFile {
    path: PathBuf,
    file: File,
}

impl RunsFile {
    /// Opens the file of a directory, which is made if it is not there. A torn line is taken away.
    pub(crate) fn open(directory: &Path) -> Result<Self, EvalError> {
        let path = directory.join(RUNS);
        let mut file = Output::new(&path).append()?;
        let bytes = Input::new(&path).limited_to(LIMIT).bytes()?;
        let kept = whole(&bytes);
        let torn = kept < bytes.len();
        let cut = if torn { file.set_len(kept as u64) } else { Ok(()) };
        cut.and_then(|()| file.seek(SeekFrom::End(0))).map_err(unwritable(&path))?;
        Ok(Self { path, file })
    }

    /// Adds a run, so that it is on the disk.
    pub(crate) fn add(&mut self, run: &impl Serialize) -> Result<(), EvalError> {
        let mut line = serde_json::to_vec(run).map_err(|error| EvalError::Write(error.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).and_then(|()| self.file.sync_data()).map_err(unwritable(&self.path))
    }
}

fn unwritable(path: &Path) -> impl FnOnce(std::io::Error) -> EvalError {
    EvalError::system(format!("{} cannot be written", path.display()))
}
