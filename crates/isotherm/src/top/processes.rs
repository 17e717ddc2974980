//! The lines of the table of processes: which there are, and in which order.

use std::borrow::Cow;
use std::time::Duration;

use isotherm_core::TargetId;
use isotherm_record::TargetInfo;
use isotherm_report::shown_command;

use super::figures::TargetFigures;
use super::model::Model;
use super::sort::{Keys, Sort};

/// For how long a process that has joined is new.
const NEW: Duration = Duration::from_secs(10);

/// A line of the table.
pub struct Line<'a> {
    pub what: Entry<'a>,
    /// How many cgroups it is in, of those that have a line.
    pub depth: usize,
}

/// What a line is about.
pub enum Entry<'a> {
    Cgroup(Cgroup<'a>),
    Process(Process<'a>),
}

/// A process that is watched, or another target.
pub struct Process<'a> {
    pub id: TargetId,
    /// The program, then its arguments.
    pub name: Cow<'a, str>,
    pub figures: &'a TargetFigures,
    /// For how long it is watched.
    pub watched: Duration,
    /// Whether it has joined recently, after the run began.
    pub new: bool,
    /// Whether it has a history, so that it can be selected.
    pub kept: bool,
    /// The path of its cgroup, if it is known.
    pub cgroup: Option<&'a str>,
}

/// A cgroup.
pub struct Cgroup<'a> {
    /// Its path below the cgroup whose line it follows, or that it is not known.
    pub name: &'a str,
    /// The number of processes in it and below it.
    pub processes: usize,
    /// The sums over them.
    pub figures: TargetFigures,
    /// For how long the first of them is watched.
    pub watched: Duration,
}

/// All targets that have not ended, in this order.
pub fn sorted(model: &Model, sort: Sort) -> Vec<Process<'_>> {
    let mut processes = processes(model);
    processes.sort_by(|a, b| sort.order(&a.keys(), &b.keys()).then(a.id.cmp(&b.id)));
    processes
}

fn processes(model: &Model) -> Vec<Process<'_>> {
    let kept = model.tracks.iter().filter(|track| model.lives(track));
    let kept = kept.map(|track| Process {
        kept: true,
        ..Process::new(model, track.id, &track.info, &track.figures, track.joined)
    });
    let others = model.others.iter();
    let others = others.map(|(&id, other)| Process::new(model, id, &other.info, &other.figures, other.joined));
    kept.chain(others).collect()
}

impl<'a> Line<'a> {
    /// The line of a process, in so many cgroups that have a line.
    pub fn process(process: Process<'a>, depth: usize) -> Self {
        Self { what: Entry::Process(process), depth }
    }

    /// The target that can be selected by this line.
    pub fn target(&self) -> Option<TargetId> {
        match &self.what {
            Entry::Process(process) if process.kept => Some(process.id),
            _ => None,
        }
    }

    pub fn figures(&self) -> &TargetFigures {
        match &self.what {
            Entry::Process(process) => process.figures,
            Entry::Cgroup(group) => &group.figures,
        }
    }
}

impl<'a> Process<'a> {
    /// A target without a history.
    fn new(model: &Model, id: TargetId, info: &'a TargetInfo, figures: &'a TargetFigures, joined: Duration) -> Self {
        Self {
            id,
            name: shown_command(&info.command),
            figures,
            watched: model.time.saturating_sub(joined),
            new: joined > model.start && model.time < joined + NEW,
            kept: false,
            cgroup: info.cgroup.as_deref(),
        }
    }

    fn keys(&self) -> Keys<'_> {
        self.figures.keys(self.watched, &self.name)
    }
}

#[cfg(test)]
#[path = "processes_tests.rs"]
mod tests;
