//! The directory of runs under pressure.
//!
//! - `pressure.json`: what is measured, and on which machine. Runs are added only if it is the same.
//! - `runs.jsonl`: a line for each run, added when it ends. A last line that is torn is passed over.
//! - `mlock.yaml` and so on: the scheme files.
//! - `work/`: the files of the workloads.

use serde::{Deserialize, Serialize};

use super::PressureCase;
use crate::store::{self, difference};
use crate::{Machine, Run};

/// A directory that runs are added to.
pub(super) type Store = store::Store<Kept>;

/// What is measured. Runs of another one cannot be compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Subject {
    pub(super) machine: Machine,
    pub(super) isotherm: String,
    pub(super) suite: String,
    pub(super) scale: u32,
    pub(super) options: Vec<String>,
    pub(super) may_change: Vec<String>,
    /// The text of the schemes, one after the other.
    pub(super) schemes: String,
}

impl store::Subject for Subject {
    const FILE: &str = "pressure.json";

    fn difference(&self, other: &Self) -> Option<String> {
        let parts = [
            ("suite", &self.suite, &other.suite),
            ("schemes", &self.schemes, &other.schemes),
            ("version of isotherm", &self.isotherm, &other.isotherm),
        ];
        let settings =
            (self.scale, &self.options, &self.may_change) != (other.scale, &other.options, &other.may_change);
        let settings = settings.then(|| "another scale, other options of isotherm, or other settings".to_owned());
        self.machine.difference(&other.machine).or(difference(parts)).or(settings)
    }
}

/// A run that was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    #[serde(flatten)]
    pub(super) case: PressureCase,
    /// The most bytes of memory that the workload has without a limit, of which the limit is a share. 0 if it is not
    /// known, because the workload failed.
    pub(super) unlimited: u64,
    /// The most bytes of memory in this run.
    pub(super) peak: u64,
    pub(super) run: Run,
}

impl Kept {
    /// Whether it is a run of this workload that did not fail.
    pub(super) fn is_of(&self, workload: &str, case: PressureCase) -> bool {
        self.run.failed.is_none() && self.run.workload == workload && self.case == case
    }
}
