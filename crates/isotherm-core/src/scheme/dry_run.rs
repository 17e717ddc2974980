//! A dry run: what schemes would do, without doing it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{AddrRange, BoxError, TargetId};

use super::{Action, Actuator, Outcome, PageInspector, PageKind, ProcessFacts, Refusal, Work};

/// An actuator that does nothing. It reports that every action was carried out, and that none took any time.
#[derive(Clone, Copy, Debug, Default)]
pub struct DryRunActuator;

impl Actuator for DryRunActuator {
    fn supports(&mut self, _action: Action, _inside: bool) -> Result<(), BoxError> {
        Ok(())
    }

    fn is_dry(&self) -> bool {
        true
    }

    fn apply(&mut self, work: &Work<'_>, outcomes: &mut [Outcome]) -> Result<(), BoxError> {
        for (range, outcome) in work.ranges.iter().zip(outcomes) {
            // Nothing is freed, so what is in memory later has not come back.
            *outcome = Outcome { resident: Some(range.size()), ..Outcome::all(*range) };
        }
        Ok(())
    }

    fn time_spent(&self) -> Duration {
        Duration::ZERO
    }
}

/// An inspector that inspects nothing. It knows the processes that were inserted, and finds no page young or huge. It
/// does not tell which pages are present.
#[derive(Clone, Debug, Default)]
pub struct DryRunInspector {
    processes: BTreeMap<TargetId, ProcessFacts>,
}

impl DryRunInspector {
    /// Sets the facts of a target, for filters by process.
    pub fn insert(&mut self, target: TargetId, facts: ProcessFacts) {
        self.processes.insert(target, facts);
    }
}

impl PageInspector for DryRunInspector {
    fn tells(&mut self, kind: PageKind) -> Result<(), BoxError> {
        match kind {
            PageKind::Present => Err("nothing is inspected".into()),
            _ => Ok(()),
        }
    }

    fn process(&mut self, target: TargetId) -> Option<ProcessFacts> {
        self.processes.get(&target).cloned()
    }

    fn pages(
        &mut self,
        _target: TargetId,
        _ranges: &[AddrRange],
        _kind: PageKind,
        _found: &mut Vec<AddrRange>,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    fn time_inspecting(&self) -> Duration {
        Duration::ZERO
    }
}
