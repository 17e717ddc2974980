//! A directory of runs on one subject: a file that says what it is about, and the file of runs.

use std::io::Write;
use std::path::{Path, PathBuf};

use isotherm_input::Input;
use isotherm_output::{LockedOutput, Output};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::EvalError;
use crate::runs_file::{self, LIMIT, RunsFile};

/// What the runs of a directory are about. Runs of another subject cannot be compared.
pub(crate) trait Subject: Serialize + DeserializeOwned {
    /// The name of its file.
    const FILE: &str;

    /// What differs from another one. `None` if runs may be joined.
    fn difference(&self, other: &Self) -> Option<String>;
}

/// The first of some named parts of two subjects that differs.
pub(crate) fn difference<'a>(parts: impl IntoIterator<Item = (&'a str, &'a String, &'a String)>) -> Option<String> {
    parts.into_iter().find(|(_, one, other)| one != other).map(|(name, ..)| format!("other {name}"))
}

/// A directory that runs are added to.
#[derive(Debug)]
pub(crate) struct Store<T> {
    pub(crate) directory: PathBuf,
    pub(crate) runs: Vec<T>,
    file: RunsFile,
    /// Held as long as runs are added, so that nobody else adds any.
    _locked: LockedOutput,
}

impl<T: Serialize + DeserializeOwned> Store<T> {
    pub(crate) fn begin<S: Subject>(directory: &Path, resume: bool, subject: &S) -> Result<Self, EvalError> {
        let what = format!("{} cannot be made", directory.display());
        std::fs::create_dir_all(directory).map_err(EvalError::system(what))?;
        let path = directory.join(S::FILE);
        let locked = Output::new(&path).lock()?;
        if path.exists() {
            if !resume {
                return Err(EvalError::HasResults(directory.into()));
            }
            let text = Input::new(&path).limited_to(LIMIT).text()?;
            let wrong = |source| EvalError::Results { path: path.clone(), line: 1, source };
            let before: S = serde_json::from_str(&text).map_err(wrong)?;
            if let Some(what) = subject.difference(&before) {
                return Err(EvalError::OtherMachine { path: directory.into(), what });
            }
        }
        locked.create()?.write_whole(|out| {
            serde_json::to_writer_pretty(&mut *out, subject)?;
            out.write_all(b"\n")
        })?;
        let file = RunsFile::open(directory)?;
        Ok(Self { directory: directory.into(), runs: runs_file::read(directory)?, file, _locked: locked })
    }

    /// Adds a run, so that it is on the disk.
    pub(crate) fn add(&mut self, kept: T) -> Result<(), EvalError> {
        self.file.add(&kept)?;
        self.runs.push(kept);
        Ok(())
    }

    /// Writes a file of the result.
    pub(crate) fn write(&self, name: &str, text: &[u8]) -> Result<PathBuf, EvalError> {
        let path = self.directory.join(name);
        Output::new(&path).create()?.write_whole(|out| out.write_all(text))?;
        Ok(path)
    }
}
