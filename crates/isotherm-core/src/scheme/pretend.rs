//! An actuator that does nothing: what schemes would do.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{AddrRange, BoxError, TargetId};

use super::{Action, Actuator, Outcome, PageKind, ProcessFacts, Work};

/// Says of everything that it was done, at no cost, and of no page that it is young or huge.
#[derive(Clone, Debug, Default)]
pub struct Pretend {
    processes: BTreeMap<TargetId, ProcessFacts>,
}

impl Pretend {
    /// What `target` is, for filters by process.
    pub fn know(&mut self, target: TargetId, facts: ProcessFacts) {
        self.processes.insert(target, facts);
    }
}

impl Actuator for Pretend {
    fn supports(&mut self, _action: Action, _inside: bool) -> Result<(), BoxError> {
        Ok(())
    }

    fn tells(&mut self, _kind: PageKind) -> Result<(), BoxError> {
        Ok(())
    }

    fn process(&mut self, target: TargetId) -> Option<ProcessFacts> {
        self.processes.get(&target).cloned()
    }

    fn pages(
        &mut self,
        _target: TargetId,
        _range: AddrRange,
        _kind: PageKind,
        _found: &mut Vec<AddrRange>,
    ) -> Result<(), i32> {
        Ok(())
    }

    fn apply(&mut self, work: &Work<'_>, outcomes: &mut [Outcome]) -> Result<(), BoxError> {
        for (range, outcome) in work.ranges.iter().zip(outcomes) {
            *outcome = Outcome::all(*range);
        }
        Ok(())
    }

    fn time_spent(&self) -> Duration {
        Duration::ZERO
    }
}
