//! The report of `isotherm tune`: the attributes that suit the targets, their working set over several windows, and
//! advice that follows from it.
//!
//! All figures come from a [`Source`], also the [`Surroundings`] of the targets, such as their cgroup; of a recording
//! without them, the advice says less. Each rule of the advice is a function of these facts in a module of its own,
//! with its thresholds as constants.

mod advice;
mod attributes;
mod blocks;
mod facts;
mod huge_pages;
mod limit;
mod reclaim;
mod surroundings;
mod text;
mod working_set;

use std::io::Write;
use std::time::Duration;

use isotherm_core::{TargetId, units};
use isotherm_record::{Header, pid_column};
use schemars::JsonSchema;
use serde::Serialize;

use crate::evidence::Evidence;
use crate::source::{Selection, Source};
use crate::{Format, Kind, ReportError, Terminal, escape};

pub use advice::{Advice, Topic, Withheld};
pub use attributes::FoundAttributes;
pub use blocks::Blocks;
pub use isotherm_record::{AnonymousMemory, Cgroup, Limit};
pub use surroundings::{Surroundings, Swap};
pub use working_set::{Idle, Window, WorkingSet};

use facts::Facts;

/// A rule gives advice, or the reason why it gives none.
type Rule = fn(&Facts<'_>) -> Result<Advice, String>;

/// With a shorter time under survey, no window says much about how the target behaves.
const LEAST_TIME: Duration = Duration::from_secs(10);

/// A process that is younger than this at the end may still be starting: reading files, filling caches, compiling.
const STARTING: Duration = Duration::from_secs(60);

/// What was found, and what follows from it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Tune {
    /// The start of the selected time.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
    /// What limits the evidence, the most important first. Empty if nothing does.
    pub warnings: Vec<String>,
    /// The header of the recording.
    pub recording: Header,
    /// The targets.
    pub targets: Vec<TunedTarget>,
    /// The attributes that the run has settled on, and what they cost.
    pub attributes: FoundAttributes,
    /// The working set.
    pub working_set: WorkingSet,
    /// How densely blocks of 2 MiB are accessed. `None` without surveys, and of physical memory.
    pub huge_pages: Option<Blocks>,
    /// What is known of the machine and of the targets.
    pub surroundings: Surroundings,
    /// The advice.
    pub advice: Vec<Advice>,
    /// The topics on which there is no advice, with the reason.
    pub withheld: Vec<Withheld>,
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TunedTarget {
    /// Its process ID; 0 is physical memory.
    pub pid: u32,
    /// The process ID in the PID namespace of the process, if that is another one.
    pub inner_pid: Option<u32>,
    /// Its command line.
    pub command: String,
}

impl Tune {
    /// The report on a selection. `target_options` are those with which the targets were named, as
    /// [`Surroundings::target_options`].
    ///
    /// # Errors
    /// If the source cannot be read, or has nothing in the selection.
    pub fn new(
        source: &dyn Source,
        selection: &Selection,
        target_options: Option<String>,
    ) -> Result<Self, ReportError> {
        let evidence = Evidence::of(source, selection)?;
        let (attributes, seen) = attributes::find(source, selection)?;
        let working_set = working_set::find(source, selection)?;
        let physical = seen.targets.iter().any(|(id, _)| id.pid().is_none());
        let blocks = if physical { None } else { blocks::find(source, selection)? };
        let warnings = warnings(&evidence, &working_set, &seen, source.header());
        let targets: Vec<TargetId> = seen.targets.iter().map(|(id, _)| *id).collect();
        let recorded = Surroundings::recorded(source, selection, &targets)?;
        let surroundings = Surroundings { target_options, ..recorded };
        let mut tune = Self {
            from_ns: seen.from.as_nanos() as u64,
            to_ns: seen.to.as_nanos() as u64,
            warnings,
            recording: source.header().clone(),
            targets: seen
                .targets
                .iter()
                .map(|(id, info)| TunedTarget {
                    pid: pid_column(*id),
                    inner_pid: info.inner_pid,
                    command: info.command.clone(),
                })
                .collect(),
            attributes,
            working_set,
            huge_pages: blocks,
            surroundings,
            advice: vec![],
            withheld: vec![],
        };
        tune.advise(physical);
        Ok(tune)
    }

    /// Applies the rules.
    fn advise(&mut self, physical: bool) {
        let target_options = self.target_options();
        let facts = Facts {
            working_set: &self.working_set,
            blocks: self.huge_pages.as_ref(),
            surroundings: &self.surroundings,
            target_options: &target_options,
        };
        let rules: [(Topic, Rule); 3] = [
            (Topic::MemoryLimit, limit::advise),
            (Topic::Reclaim, reclaim::advise),
            (Topic::HugePages, huge_pages::advise),
        ];
        let (mut advice, mut withheld) = (vec![], vec![]);
        for (topic, rule) in rules {
            let found = match self.working_set.covered_ns {
                _ if physical => Err("this advice is about processes; name one with --pid".into()),
                None => Err("it needs surveys, and there are none".into()),
                Some(covered) if covered < LEAST_TIME.as_nanos() as u64 => Err(format!(
                    "the surveys cover {}, and at least {} are needed",
                    units::nanoseconds(covered),
                    units::duration(LEAST_TIME)
                )),
                Some(_) => rule(&facts),
            };
            match found {
                Ok(found) => advice.push(found),
                Err(reason) => withheld.push(Withheld { topic, reason }),
            }
        }
        (self.advice, self.withheld) = (advice, withheld);
    }

    /// The options that name the targets, as `isotherm record` takes them.
    pub fn target_options(&self) -> String {
        const MOST: usize = 4;
        match &self.surroundings.target_options {
            Some(options) => options.clone(),
            None if self.targets.iter().any(|target| target.pid == 0) => "--physical".into(),
            None if self.targets.len() > MOST => "--pid PID --children".into(),
            None => self.targets.iter().map(|target| format!("--pid {}", target.pid)).collect::<Vec<_>>().join(" "),
        }
    }

    /// The schemes that the advice has, as one file of schemes. `None` if it has none.
    pub fn schemes(&self) -> Option<String> {
        const HEAD: &str = "schemes:\n";
        let each: Vec<&str> = self.advice.iter().filter_map(|advice| advice.scheme.as_deref()).collect();
        let lists = each.iter().filter_map(|scheme| scheme.strip_prefix(HEAD));
        (!each.is_empty()).then(|| HEAD.to_owned() + &lists.collect::<String>())
    }

    /// Writes the report as text or JSON.
    ///
    /// # Errors
    /// If there is no such format of it, or `out` cannot be written to.
    pub fn write(&self, format: Format, terminal: &Terminal, out: &mut dyn Write) -> Result<(), ReportError> {
        match format {
            Format::Text => text::write(out, terminal, self)?,
            Format::Json => writeln!(out, "{}", escape::json(self)?)?,
            Format::Png | Format::Svg | Format::Html => {
                return Err(ReportError::Unsupported { kind: Kind::Tune, format });
            }
        }
        out.flush()?;
        Ok(())
    }
}

/// What limits the evidence.
fn warnings(evidence: &Evidence, found: &WorkingSet, seen: &attributes::Recorded, header: &Header) -> Vec<String> {
    let mut warnings: Vec<String> = evidence.warnings().collect();
    match found.covered_ns {
        Some(covered) if covered < LEAST_TIME.as_nanos() as u64 => warnings.push(format!(
            "little evidence: the surveys cover {}; watch for at least 30 s, and for a minute or more if you can",
            units::nanoseconds(covered)
        )),
        _ => {}
    }
    let end = header.started_unix_ns.saturating_add(seen.to.as_nanos() as u64);
    let ages = seen
        .targets
        .iter()
        .filter(|(_, info)| info.started_unix_ns > 0)
        .map(|(_, info)| Duration::from_nanos(end.saturating_sub(info.started_unix_ns)));
    if let Some(age) = ages.max().filter(|&age| age < STARTING) {
        warnings.push(format!(
            "little evidence: the target had run for {} at the end; what it needs once it has started up is not known",
            units::duration(Duration::from_secs(age.as_secs().max(1)))
        ));
    }
    warnings
}
