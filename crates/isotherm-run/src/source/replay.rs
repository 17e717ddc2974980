//! An existing recording, replayed as fast as the sinks take it.

use std::sync::Arc;

use isotherm_core::scheme::{DryRunActuator, DryRunInspector, NoGauges, ProcessFacts, Scheme};
use isotherm_record::Recording;

use super::recorded_pages::RecordedPages;
use super::{Outlet, Source};
use crate::schemes::InlineSchemes;
use crate::{EndReason, RunError};

/// Replays a recording. Schemes act on nothing, and report what they would have done. Where the recording has surveys,
/// they know the pages that were present and since when these were idle, and snapshots have histories.
///
/// What a recording does not hold is left out: the goals of a quota (it stays as it is written), the metrics of
/// watermarks (the scheme is awake), the age of pages and their size (none is young or huge), and cgroups.
pub(crate) struct ReplaySource {
    pub(crate) recording: Recording,
    pub(crate) schemes: Option<Vec<Scheme>>,
}

impl Source for ReplaySource {
    fn run(self: Box<Self>, outlet: &mut Outlet) -> Result<EndReason, RunError> {
        let Self { recording, schemes } = *self;
        let mut schemes = schemes
            .map(|schemes| {
                let untuned = |scheme: Scheme| Scheme { quota: scheme.quota.clone().without_goals(), ..scheme };
                let schemes = schemes.into_iter().map(untuned).collect();
                InlineSchemes::new(schemes, DryRunActuator, DryRunInspector::default(), NoGauges, outlet)
            })
            .transpose()?;
        let mut pages = RecordedPages::default();
        // Only schemes need pages.
        let mut surveys = schemes.is_some().then(|| recording.surveys()).into_iter().flatten().peekable();
        let mut marks = recording.marks().peekable();
        for record in recording.snapshots() {
            let mut record = record?;
            let mut survey = None;
            while let Some(next) =
                surveys.next_if(|next| next.as_ref().map_or(true, |s| s.survey.time <= record.snapshot.time))
            {
                survey = Some(next?.survey);
            }
            if let Some(survey) = survey {
                pages.take(survey.time, &survey.targets, &record.snapshot);
            }
            record.snapshot.histories = pages.histories();
            let record = Arc::new(record);
            if outlet.duration.is_some_and(|duration| record.snapshot.time > duration) {
                return Ok(EndReason::DurationOver);
            }
            if outlet.control.take().stop {
                return Ok(EndReason::Stopped);
            }
            while let Some(mark) =
                marks.next_if(|mark| mark.as_ref().map_or(true, |mark| mark.time <= record.snapshot.time))
            {
                outlet.mark(mark?);
            }
            outlet.snapshot(Arc::clone(&record));
            if let Some(schemes) = &mut schemes {
                for (id, info) in record.infos.iter() {
                    schemes.inspector_mut().insert(*id, recorded_facts(&info.command));
                }
                schemes.apply(&record.snapshot, outlet)?;
            }
        }
        for mark in marks {
            outlet.mark(mark?);
        }
        Ok(EndReason::Finished)
    }
}

/// The facts of a recorded process that filters need, as far as a recording has them: it has no cgroups.
pub fn recorded_facts(command: &str) -> ProcessFacts {
    ProcessFacts { name: process_name(command).into(), cgroup: "".into() }
}

/// The name that a process of this command line likely has: the kernel keeps 15 bytes of the program's name.
fn process_name(command: &str) -> &str {
    let program = command.split(' ').next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    let end = (0..=name.len().min(15)).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::process_name;

    #[test]
    fn a_process_is_named_after_its_program() {
        assert_eq!(process_name("/usr/sbin/redis-server 127.0.0.1:6379"), "redis-server");
        assert_eq!(process_name("a-program-of-a-long-name"), "a-program-of-a-");
        assert_eq!(process_name("1234567890123é"), "1234567890123é");
        assert_eq!(process_name("12345678901234é"), "12345678901234");
        assert_eq!(process_name(""), "");
    }
}
