//! Groups of memory: by process, command, cgroup, systemd unit, mapping or call stack.

mod programs;
mod roster;
mod stacks;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use isotherm_core::{TargetId, unit_in};
use isotherm_record::TargetInfo;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ReportError;
use crate::command::shown_command;
use crate::extent::shown_name;
use crate::source::{Selection, Source, walk};
use crate::stacks::Stacks;
use roster::Roster;

pub(crate) use roster::Reader;
pub(crate) use stacks::{StackGroups, StackShares};

/// With more targets than this, memory is grouped by command unless the user chooses.
const MOST_TARGETS: usize = 8;

/// The group of processes whose cgroup the recording does not tell.
const UNKNOWN: &str = "unknown cgroup";
/// The group of processes in a cgroup outside of all units.
const NO_UNIT: &str = "no unit";

/// What memory is grouped by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// Each target is a group.
    #[default]
    Process,
    /// The program that processes run.
    Command,
    /// The cgroup of processes.
    Cgroup,
    /// The innermost systemd unit in the path of the cgroup.
    Unit,
    /// The name of the mapping.
    Mapping,
    /// The call stack of the call that mapped the memory. Of the summary only.
    Stack,
}

impl GroupBy {
    /// Each with its name on the command line and what a group is. Stacks, which not all reports have, come last.
    pub const NAMES: [(Self, &'static str, &'static str); 6] = [
        (Self::Process, "process", "Each process by itself"),
        (Self::Command, "command", "The program that processes run"),
        (Self::Cgroup, "cgroup", "The cgroup of processes"),
        (Self::Unit, "unit", "The innermost systemd unit of their cgroup"),
        (Self::Mapping, "mapping", "The name of the mapping"),
        (Self::Stack, "stack", "The functions that mapped the memory; only for recordings with call stacks"),
    ];

    /// What a group is, in a word: that of the command line.
    pub(crate) const fn word(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// The title of the names of groups.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Process | Self::Command => "command",
            Self::Cgroup => "cgroup",
            Self::Unit => "unit",
            Self::Mapping => "mapping",
            Self::Stack => "stack",
        }
    }
}

/// One group of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Group {
    /// Its name: the command, program, cgroup, unit, mapping or functions. Programs of the same name are told
    /// apart by as much of their paths as differs.
    pub name: String,
    /// The number of targets in the selected time.
    pub processes: usize,
    /// Their process IDs, 0 for physical memory. `None` if the group is a mapping or a stack.
    pub pids: Option<Vec<u32>>,
    /// The functions of the stack, the innermost first; of one of the stacks, if several have this name. `None` if the
    /// group is not a stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<Vec<Frame>>,
}

impl Group {
    /// Its name in a list that has only names: processes of the same command are told apart by their IDs.
    pub(crate) fn listed(&self, by: GroupBy) -> String {
        match self.pids.as_deref() {
            Some(&[pid]) if by == GroupBy::Process && pid != 0 => format!("{pid} {}", self.name),
            _ => self.name.clone(),
        }
    }
}

/// A function in a call stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Frame {
    /// The name of the function. `None` if it is not known.
    pub function: Option<Arc<str>>,
    /// The file that holds the code. `None` if no file does.
    pub module: Option<Arc<str>>,
    /// The distance of the call in bytes: from the start of the function, or without one from the start of the file, or
    /// without both from address 0.
    pub offset: u64,
}

/// Which group memory belongs to.
#[derive(Clone, Debug, Default)]
pub struct Grouping {
    by: GroupBy,
    groups: Vec<Group>,
    of_target: HashMap<TargetId, usize>,
    of_mapping: HashMap<Arc<str>, usize>,
    of_stack: Option<Arc<StackGroups>>,
    /// The targets that snapshots have. Others are in surveys alone.
    sampled: Arc<HashSet<TargetId>>,
}

impl Grouping {
    /// The groups of the targets of a selection. Without `by`, they are by process, or by command if there are more
    /// than eight of several programs.
    ///
    /// # Errors
    /// If the source cannot be read, or does not tell the cgroups that the groups are by.
    pub fn of(source: &dyn Source, selection: &Selection, by: Option<GroupBy>) -> Result<Self, ReportError> {
        let mut reader = Self::reader(selection, by);
        match walk(source, selection, &mut [&mut reader]) {
            // What has nothing to group has no groups.
            Err(ReportError::NothingRecorded { .. } | ReportError::NothingMatches { .. }) => {}
            walked => walked?,
        }
        Self::of_reader(reader, source, selection, by)
    }

    /// What reads what is grouped, before the walk of a selection.
    pub(crate) fn reader(selection: &Selection, by: Option<GroupBy>) -> Reader {
        Reader::new(selection, by == Some(GroupBy::Mapping))
    }

    /// The groups of what was read.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub(crate) fn of_reader(
        reader: Reader,
        source: &dyn Source,
        selection: &Selection,
        by: Option<GroupBy>,
    ) -> Result<Self, ReportError> {
        let roster = reader.finish();
        let many = roster.targets.len() > MOST_TARGETS && programs::are_several(&roster.targets);
        let by = by.unwrap_or(if many { GroupBy::Command } else { GroupBy::Process });
        let mut grouping = Self { by, sampled: Arc::new(roster.sampled.clone()), ..Self::default() };
        if by == GroupBy::Mapping {
            grouping.add_mappings(&roster);
            return Ok(grouping);
        }
        if by == GroupBy::Stack {
            let stacks = Stacks::read(source, selection)?;
            let (of_stack, groups) = StackGroups::new(&stacks, roster.targets.len());
            return Ok(Self { of_stack: Some(Arc::new(of_stack)), groups, ..grouping });
        }
        let knows = roster.targets.iter().any(|(_, info)| info.cgroup.is_some());
        if matches!(by, GroupBy::Cgroup | GroupBy::Unit) && !knows && !roster.targets.is_empty() {
            return Err(ReportError::NoCgroups);
        }
        let names = if by == GroupBy::Command {
            programs::names(&roster.targets)
        } else {
            roster.targets.iter().map(|(id, info)| name_of(*id, info, by)).collect()
        };
        let mut known: HashMap<String, usize> = HashMap::new();
        for ((id, _), name) in roster.targets.iter().zip(names) {
            let new = grouping.groups.len();
            let nth = if by == GroupBy::Process { new } else { *known.entry(name.clone()).or_insert(new) };
            if nth == new {
                grouping.groups.push(Group { name, pids: Some(vec![]), ..Group::default() });
            }
            let group = &mut grouping.groups[nth];
            group.processes += 1;
            group.pids.iter_mut().for_each(|pids| pids.push(isotherm_record::pid_column(*id)));
            grouping.of_target.insert(*id, nth);
        }
        Ok(grouping)
    }

    fn add_mappings(&mut self, roster: &Roster) {
        for (label, processes) in &roster.mappings {
            let name = shown_name(label);
            self.of_mapping.insert(Arc::from(name), self.groups.len());
            self.groups.push(Group { name: name.into(), processes: *processes, ..Group::default() });
        }
    }

    /// Whether a snapshot of the selection has this target.
    pub(crate) fn is_sampled(&self, target: TargetId) -> bool {
        self.sampled.contains(&target)
    }

    /// What the groups are by.
    pub fn by(&self) -> GroupBy {
        self.by
    }

    /// The name of a group in a list that has only names.
    pub(crate) fn name(&self, nth: usize) -> String {
        self.groups.get(nth).map_or_else(String::new, |group| group.listed(self.by))
    }

    /// The groups, in the order in which they appear.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The groups of stacks. `None` if groups are by something else.
    pub(crate) fn of_stack(&self) -> Option<&Arc<StackGroups>> {
        self.of_stack.as_ref()
    }

    /// The place among the groups of that of a target. `None` if groups are by mapping or stack, or the target is not
    /// selected.
    pub fn of_target(&self, target: TargetId) -> Option<usize> {
        self.of_target.get(&target).copied()
    }

    /// The place among the groups of that of memory of a target, in a mapping whose name is shown as `name`.
    pub fn of_memory(&self, target: TargetId, name: &str) -> Option<usize> {
        if self.by == GroupBy::Mapping { self.of_mapping.get(name).copied() } else { self.of_target(target) }
    }
}

/// The name of the group of a target, other than by command.
fn name_of(id: TargetId, info: &TargetInfo, by: GroupBy) -> String {
    let cgroup = info.cgroup.as_deref();
    match by {
        GroupBy::Cgroup => cgroup.unwrap_or(UNKNOWN).into(),
        GroupBy::Unit => cgroup.map_or(UNKNOWN, |path| unit_in(path).unwrap_or(NO_UNIT)).into(),
        GroupBy::Process | GroupBy::Command | GroupBy::Mapping | GroupBy::Stack => match id.pid() {
            None => id.to_string(),
            Some(_) => shown_command(&info.command).into_owned(),
        },
    }
}
