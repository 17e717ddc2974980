//! The directory of a tuning.
//!
//! - `tune.json`: what is tuned, and on which machine. A search goes on only if it is the same.
//! - `runs.jsonl`: a line for each run, added when it ends. A last line that is torn is passed over.
//! - `isotherm.rec`: the recording that estimates are made from, if the user names none.
//! - `tuned.yaml`, `tuning.json`, `tuning.svg`: the result.

use std::io::Write;
use std::path::{Path, PathBuf};

use isotherm_input::Input;
use isotherm_output::{LockedOutput, Output};
use serde::{Deserialize, Serialize};

use crate::runs_file::{self, LIMIT, RunsFile};
use crate::{EvalError, Machine, Run};

const TUNED: &str = "tune.json";

/// What is tuned. Runs of another one cannot be compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Subject {
    pub(super) machine: Machine,
    pub(super) isotherm: String,
    /// The text of the schemes, with ranges.
    pub(super) schemes: String,
    pub(super) workload: String,
    pub(super) command: String,
    pub(super) scale: u32,
    pub(super) options: Vec<String>,
    pub(super) search: String,
    pub(super) may_change: Vec<String>,
}

impl Subject {
    fn difference(&self, other: &Self) -> Option<String> {
        let parts = [
            ("schemes", &self.schemes, &other.schemes),
            ("workload", &self.workload, &other.workload),
            ("command", &self.command, &other.command),
            ("way of searching", &self.search, &other.search),
            ("version of isotherm", &self.isotherm, &other.isotherm),
        ];
        let part = parts.into_iter().find(|(_, one, other)| one != other).map(|(name, ..)| format!("other {name}"));
        let settings =
            (self.scale, &self.options, &self.may_change) != (other.scale, &other.options, &other.may_change);
        let settings = settings.then(|| "another scale, other options of isotherm, or other settings".to_owned());
        self.machine.difference(&other.machine).or(part).or(settings)
    }
}

/// A run that was made, and the values of the parameters; none if no scheme ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) values: Option<Vec<f64>>,
    /// The places of the values in their ranges.
    pub(super) at: Option<Vec<f64>>,
    pub(super) run: Run,
}

/// A directory that runs are added to.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) directory: PathBuf,
    pub(super) runs: Vec<Kept>,
    file: RunsFile,
    /// Held as long as runs are added, so that nobody else adds any.
    _locked: LockedOutput,
}

impl Store {
    pub(super) fn begin(directory: &Path, resume: bool, subject: &Subject) -> Result<Self, EvalError> {
        let what = format!("{} cannot be made", directory.display());
        std::fs::create_dir_all(directory).map_err(EvalError::system(what))?;
        let path = directory.join(TUNED);
        let locked = Output::new(&path).lock()?;
        if path.exists() {
            if !resume {
                return Err(EvalError::HasResults(directory.into()));
            }
            let text = Input::new(&path).limited_to(LIMIT).text()?;
            let wrong = |source| EvalError::Results { path: path.clone(), line: 1, source };
            let before: Subject = serde_json::from_str(&text).map_err(wrong)?;
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
    pub(super) fn add(&mut self, kept: Kept) -> Result<(), EvalError> {
        self.file.add(&kept)?;
        self.runs.push(kept);
        Ok(())
    }

    /// Writes a file of the result.
    pub(super) fn write(&self, name: &str, text: &[u8]) -> Result<PathBuf, EvalError> {
        let path = self.directory.join(name);
        Output::new(&path).create()?.write_whole(|out| out.write_all(text))?;
        Ok(path)
    }
}
