//! The directory of a tuning.
//!
//! - `tune.json`: what is tuned, and on which machine. A search goes on only if it is the same.
//! - `runs.jsonl`: a line for each run, added when it ends. A last line that is torn is passed over.
//! - `isotherm.rec`: the recording that estimates are made from, if the user names none.
//! - `tuned.yaml`, `tuning.json`, `tuning.svg`: the result.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use isotherm_input::Input;
use isotherm_output::{LockedOutput, Output};
use serde::{Deserialize, Serialize};

use crate::{EvalError, Machine, Run};

const TUNED: &str = "tune.json";
const RUNS: &str = "runs.jsonl";

/// The most bytes of a file: a run has about 1 KB.
const LIMIT: u64 = 1 << 30;

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
    file: File,
    /// Held as long as runs are added, so that nobody else adds any.
    _locked: LockedOutput,
}

impl Store {
    pub(super) fn begin(directory: &Path, resume: bool, subject: &Subject) -> Result<Self, EvalError> {
        let what = format!("{} cannot be made", directory.display());
        std::fs::create_dir_all(directory).map_err(EvalError::system(what))?;
        let (path, runs) = (directory.join(TUNED), directory.join(RUNS));
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
        let mut file = Output::new(&runs).append()?;
        let what = format!("{} cannot be written", runs.display());
        let bytes = Input::new(&runs).limited_to(LIMIT).bytes()?;
        // What follows the last line break was torn.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(EvalError::system(what))?;
        let lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).enumerate();
        let wrong = |line| {
            let path = runs.clone();
            move |source| EvalError::Results { path, line, source }
        };
        let kept = lines.map(|(nth, line)| serde_json::from_slice(line).map_err(wrong(nth + 1)));
        let kept = kept.collect::<Result<_, _>>()?;
        Ok(Self { directory: directory.into(), runs: kept, file, _locked: locked })
    }

    /// Adds a run, so that it is on the disk.
    pub(super) fn add(&mut self, kept: Kept) -> Result<(), EvalError> {
        let mut line = serde_json::to_vec(&kept).map_err(|error| EvalError::Write(error.into()))?;
        line.push(b'\n');
        let what = format!("{} cannot be written", self.directory.join(RUNS).display());
        self.file.write_all(&line).and_then(|()| self.file.sync_data()).map_err(EvalError::system(what))?;
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
