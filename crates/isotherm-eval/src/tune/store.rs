//! The directory of a tuning.
//!
//! - `tune.json`: what is tuned, and on which machine. A search goes on only if it is the same.
//! - `runs.jsonl`: a line for each run, added when it ends. A last line that is torn is passed over.
//! - `isotherm.rec`: the recording that estimates are made from, if the user names none.
//! - `tuned.yaml`, `tuning.json`, `tuning.svg`: the result.

use serde::{Deserialize, Serialize};

use crate::store::{self, difference};
use crate::{Machine, Run};

/// A directory that runs are added to.
pub(super) type Store = store::Store<Kept>;

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

impl store::Subject for Subject {
    const FILE: &str = "tune.json";

    fn difference(&self, other: &Self) -> Option<String> {
        let parts = [
            ("schemes", &self.schemes, &other.schemes),
            ("workload", &self.workload, &other.workload),
            ("command", &self.command, &other.command),
            ("way of searching", &self.search, &other.search),
            ("version of isotherm", &self.isotherm, &other.isotherm),
        ];
        let part = difference(parts);
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
