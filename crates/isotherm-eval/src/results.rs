//! The directory of results.
//!
//! - `evaluation.json`: the sessions, of which each has its machine, settings, and what it left out. It is replaced by
//!   a whole one.
//! - `runs.jsonl`: a line for each run, added when it ends. A last line that is torn is passed over.
//! - `recordings/`: isotherm's recording of the first run of each workload under each configuration.
//! - `schemes/`: the scheme files of the configurations that act.
//! - `work/`: the files of the workloads.

use std::io::Write;
use std::path::{Path, PathBuf};

use isotherm_input::Input;
use isotherm_output::{LockedOutput, Output};
use serde::{Deserialize, Serialize};

use crate::runs_file::{self, LIMIT, RUNS, RunsFile};
use crate::{Configuration, EvalError, LeftOut, Machine, Run};

const SESSIONS: &str = "evaluation.json";

/// One call of `isotherm eval run`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    /// When it began, in nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// The version of isotherm.
    pub isotherm: String,
    /// The machine, as it was before.
    pub machine: Machine,
    /// The name of the suite.
    pub suite: String,
    /// The names of its workloads, in the order of the suite, and of tables.
    pub workloads: Vec<String>,
    /// The configurations.
    pub configurations: Vec<Configuration>,
    /// Runs of each workload under each configuration.
    pub runs: u32,
    /// The size of the work of each program, in per cent of the usual.
    pub scale: u32,
    /// The settings that were changed during the runs.
    pub may_change: Vec<String>,
    /// Further options of isotherm.
    pub options: Vec<String>,
    /// What was not run, and why.
    pub left_out: Vec<LeftOut>,
}

impl Session {
    /// What differs from another session, so that their runs cannot be compared.
    fn difference(&self, other: &Self) -> Option<String> {
        let scale = || {
            let (here, there) = (self.scale, other.scale);
            (here != there).then(|| format!("the scale is {here} % here, and {there} % there"))
        };
        self.machine.difference(&other.machine).or_else(scale)
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Sessions {
    /// The version of the format.
    format: u32,
    sessions: Vec<Session>,
}

/// A directory of results.
#[derive(Debug)]
pub struct Results {
    directory: PathBuf,
    /// The sessions, the oldest first.
    pub sessions: Vec<Session>,
    /// The runs, in the order in which they ended.
    pub runs: Vec<Run>,
    writer: Option<Writer>,
}

#[derive(Debug)]
struct Writer {
    /// Held as long as runs are added, so that nobody else adds any.
    _sessions: LockedOutput,
    runs: RunsFile,
}

impl Results {
    /// Reads a directory.
    ///
    /// # Errors
    /// If it has no results, or they cannot be understood.
    pub fn read(directory: &Path) -> Result<Self, EvalError> {
        let path = directory.join(SESSIONS);
        if !path.exists() {
            return Err(EvalError::NoResults(directory.into()));
        }
        let text = Input::new(&path).limited_to(LIMIT).text()?;
        let wrong = |source| EvalError::Results { path, line: 1, source };
        let sessions: Sessions = serde_json::from_str(&text).map_err(wrong)?;
        Ok(Self {
            directory: directory.into(),
            sessions: sessions.sessions,
            runs: runs_file::read(directory)?,
            writer: None,
        })
    }

    /// Begins a session in a directory, which is made if it is not there. With `resume`, it may have results.
    ///
    /// # Errors
    /// If the directory has results although it may not, or those of another machine; if another process writes to it;
    /// if it cannot be written.
    pub fn begin(directory: &Path, resume: bool, session: Session) -> Result<Self, EvalError> {
        let make = |directory: &Path| {
            let what = format!("{} cannot be made", directory.display());
            std::fs::create_dir_all(directory).map_err(EvalError::system(what))
        };
        ["", "recordings", "schemes", "work"].iter().try_for_each(|name| make(&directory.join(name)))?;
        let locked = Output::new(&directory.join(SESSIONS)).lock()?;
        let mut results = match Self::read(directory) {
            Ok(results) if resume => results,
            Ok(_) => return Err(EvalError::HasResults(directory.into())),
            Err(EvalError::NoResults(_)) => {
                Self { directory: directory.into(), sessions: vec![], runs: vec![], writer: None }
            }
            Err(error) => return Err(error),
        };
        if let Some(what) = results.sessions.last().and_then(|last| session.difference(last)) {
            return Err(EvalError::OtherMachine { path: directory.into(), what });
        }
        results.sessions.push(session);
        let sessions = Sessions { format: 1, sessions: results.sessions.clone() };
        locked.create()?.write_whole(|out| {
            serde_json::to_writer_pretty(&mut *out, &sessions)?;
            out.write_all(b"\n")
        })?;
        results.writer = Some(Writer { _sessions: locked, runs: RunsFile::open(directory)? });
        Ok(results)
    }

    /// Adds a run, so that it is on the disk.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, run: Run) -> Result<(), EvalError> {
        if let Some(writer) = &mut self.writer {
            writer.runs.add(&run)?;
        }
        self.runs.push(run);
        Ok(())
    }

    /// The runs that did not fail.
    pub fn done(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.failed.is_none())
    }

    /// The files that a report is made of.
    pub fn files(&self) -> [PathBuf; 2] {
        [SESSIONS, RUNS].map(|name| self.directory.join(name))
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file of the recording of a workload under a configuration.
    pub fn recording(&self, workload: &str, configuration: Configuration) -> PathBuf {
        self.directory.join("recordings").join(format!("{}-{}.rec", file_name(workload), configuration.name()))
    }

    /// The directory for the files of a workload.
    pub(crate) fn work(&self, suite: &str, workload: &str) -> PathBuf {
        work(&self.directory, suite, workload)
    }

    /// Writes the scheme file of a configuration.
    pub(crate) fn keep_schemes(&self, configuration: Configuration, text: &str) -> Result<PathBuf, EvalError> {
        let path = self.directory.join("schemes").join(format!("{}.yaml", configuration.name()));
        Output::new(&path).create()?.write_whole(|out| out.write_all(text.as_bytes()))?;
        Ok(path)
    }
}

/// The directory for the files of a workload, below a directory of results. Commands run in it, so that its name must
/// not depend on where they are.
pub(crate) fn work(results: &Path, suite: &str, workload: &str) -> PathBuf {
    let path = results.join("work").join(format!("{}-{}", file_name(suite), file_name(workload)));
    std::path::absolute(&path).unwrap_or(path)
}

/// The name of a workload as part of the name of a file.
fn file_name(name: &str) -> String {
    name.replace('/', "-")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
pub(crate) mod tests {
    use std::fs;

    use super::*;

    pub(crate) fn session() -> Session {
        Session {
            started_unix_ns: 1_700_000_000_000_000_000,
            isotherm: "0.1.0".into(),
            machine: Machine { kernel: "6.1".into(), cpus: 2, memory: 1 << 30, ..Machine::default() },
            suite: "mine".into(),
            workloads: vec!["a".into(), "splash2x/fft".into(), "c".into()],
            configurations: vec![Configuration::Orig, Configuration::Rec],
            runs: 2,
            scale: 100,
            may_change: vec![],
            options: vec![],
            left_out: vec![],
        }
    }

    #[test]
    fn runs_are_added_and_a_torn_one_is_made_again() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("results");
        assert!(matches!(Results::read(&directory), Err(EvalError::NoResults(_))));
        let mut results = Results::begin(&directory, false, session()).unwrap();
        let busy = Results::begin(&directory, true, session()).unwrap_err();
        assert!(matches!(busy, EvalError::Output(_)), "{busy}");
        results.add(Run { workload: "a".into(), nth: 1, ..Run::default() }).unwrap();
        drop(results);
        let runs = directory.join(RUNS);
        let torn = fs::read_to_string(&runs).unwrap() + "{\"workload\": \"a\", \"nth";
        fs::write(&runs, torn).unwrap();

        let error = Results::begin(&directory, false, session()).unwrap_err();
        assert!(error.to_string().contains("--resume"), "{error}");
        assert_eq!(Results::read(&directory).unwrap().runs.len(), 1);
        let mut results = Results::begin(&directory, true, session()).unwrap();
        results.add(Run { workload: "a".into(), nth: 2, ..Run::default() }).unwrap();
        drop(results);
        let results = Results::read(&directory).unwrap();
        assert_eq!(results.runs.iter().map(|run| run.nth).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(results.sessions.len(), 2);
    }

    #[test]
    fn results_of_another_machine_are_not_joined() {
        let place = tempfile::tempdir().unwrap();
        drop(Results::begin(place.path(), false, session()).unwrap());
        let mut other = session();
        other.machine.kernel = "6.2".into();
        let error = Results::begin(place.path(), true, other).unwrap_err().to_string();
        assert!(error.contains("kernel") && error.contains("6.2"), "{error}");
    }

    #[test]
    fn what_is_wrong_in_results_has_its_line() {
        let place = tempfile::tempdir().unwrap();
        drop(Results::begin(place.path(), false, session()).unwrap());
        fs::write(place.path().join(RUNS), "{}\n").unwrap();
        let error = Results::read(place.path()).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
