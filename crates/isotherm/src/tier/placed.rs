//! How much hot, warm and cold memory of processes is on each node: the part of `isotherm tier list` that watches.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{NodeSums, PageSums, WINDOWS};
use isotherm_core::{NodeId, Tiers, units};
use isotherm_record::SurveyRecord;
use isotherm_report::program;
use isotherm_run::Event;
use serde_json::{Value, json};

use crate::cli::Grouping;

/// Memory that was not accessed for so long is cold: `isotherm tier run` demotes it.
const COLD: Duration = Duration::from_secs(10);

/// The name of the line of all processes.
const ALL: &str = "all";

/// The surveys of a run, as far as they tell where memory is.
#[derive(Default)]
pub struct Surveys {
    first: Option<Duration>,
    last: Option<Arc<SurveyRecord>>,
}

impl Surveys {
    /// Takes in an event of the run.
    pub fn event(&mut self, event: &Event) {
        if let Event::Survey(record) = event
            && record.survey.targets.iter().any(|target| !target.by_node.is_empty())
        {
            self.first.get_or_insert(record.survey.time);
            self.last = Some(Arc::clone(record));
        }
    }

    /// What the last survey says. `None` if no survey told the nodes of pages.
    pub fn placed(&self, by: Grouping) -> Option<Placed> {
        let (first, record) = (self.first?, self.last.as_ref()?);
        let watched = record.survey.time.saturating_sub(first);
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for (target, info) in record.described() {
            let name = match by {
                Grouping::Program => program(&info.command).to_owned(),
                Grouping::Cgroup => info.cgroup.clone().unwrap_or_else(|| "unknown".into()),
            };
            let group = groups.entry(name).or_default();
            group.processes += 1;
            group.add(&target.by_node, watched);
        }
        let mut all = Group { processes: record.survey.targets.len(), ..Group::default() };
        all.add(&record.survey.by_node, watched);
        let mut groups: Vec<(String, Group)> = groups.into_iter().collect();
        groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.nodes.values().map(|on| on.resident).sum::<u64>()));
        if groups.len() > 1 && !all.nodes.is_empty() {
            groups.push((ALL.into(), all));
        }
        Some(Placed { by, interval: record.survey.interval, watched, groups })
    }
}

/// Where the memory of processes is.
pub struct Placed {
    by: Grouping,
    /// The time between the last two surveys.
    interval: Duration,
    /// The time from the first to the last survey.
    watched: Duration,
    /// Programs or cgroups, the largest first, and all of them.
    groups: Vec<(String, Group)>,
}

/// The processes of one program or cgroup.
#[derive(Default)]
struct Group {
    processes: usize,
    nodes: BTreeMap<NodeId, OnNode>,
}

/// Bytes on a node.
#[derive(Default)]
struct OnNode {
    resident: u64,
    hot: u64,
    warm: u64,
    cold: u64,
    unobservable: u64,
}

impl Group {
    fn add(&mut self, found: &[NodeSums], watched: Duration) {
        for NodeSums { node, sums } in found {
            self.nodes.entry(*node).or_default().add(sums, watched);
        }
    }
}

impl OnNode {
    fn add(&mut self, sums: &PageSums, watched: Duration) {
        // A longer window than the surveys go back holds no more than they have seen.
        let window = WINDOWS.iter().position(|&window| window >= COLD.min(watched)).unwrap_or(WINDOWS.len() - 1);
        let recent = sums.within[window].max(sums.figures.touched);
        self.resident += sums.figures.present;
        self.hot += sums.figures.touched;
        self.warm += recent - sums.figures.touched;
        self.cold += sums.figures.present.saturating_sub(sums.figures.unobservable).saturating_sub(recent);
        self.unobservable += sums.figures.unobservable;
    }
}

impl Placed {
    fn rows<'a>(&'a self, tiers: &'a Tiers) -> impl Iterator<Item = (&'a str, &'a Group, usize, NodeId, &'a OnNode)> {
        self.groups.iter().flat_map(move |(name, group)| {
            let tier = |node: NodeId| tiers.tiers().iter().position(|nodes| nodes.contains(&node));
            let on = group.nodes.iter().filter_map(move |(&node, on)| Some((tier(node)?, node, on)));
            on.map(move |(tier, node, on)| (name.as_str(), group, tier, node, on))
        })
    }

    /// A table of groups and nodes, and what its columns mean.
    pub fn text(&self, tiers: &Tiers) -> String {
        let header = "tier  node  resident       hot      warm      cold    unobs.";
        let mut text = format!("{header}  {}\n", self.by.name());
        for (name, group, tier, node, on) in self.rows(tiers) {
            let figures = [on.resident, on.hot, on.warm, on.cold, on.unobservable].map(units::table_bytes);
            let figures: String = figures.iter().map(|bytes| format!("  {bytes:>8}")).collect();
            let processes =
                if group.processes > 1 { format!(" ({} processes)", group.processes) } else { String::new() };
            let name = isotherm_core::sanitise(name);
            let _ = writeln!(text, "{tier:>4}  {node:>4}{figures}  {name}{processes}");
        }
        let (interval, cold) = (units::duration(self.interval), units::duration(COLD.min(self.watched)));
        let _ = writeln!(
            text,
            "\nhot: accessed in the last {interval}; warm: in the last {cold}; cold: not for {cold}; unobs.: could not \
             be observed"
        );
        if self.watched < COLD {
            let cold = units::duration(COLD);
            let _ = writeln!(text, "Watch for longer with --duration to find memory that is not accessed for {cold}.");
        }
        text
    }

    /// The same for other programs to read.
    pub fn json(&self, tiers: &Tiers) -> Value {
        let row = |(name, group, tier, node, on): (&str, &Group, usize, NodeId, &OnNode)| {
            json!({
                (self.by.name()): name,
                "processes": group.processes,
                "tier": tier,
                "node": node.0,
                "resident_bytes": on.resident,
                "hot_bytes": on.hot,
                "warm_bytes": on.warm,
                "cold_bytes": on.cold,
                "unobservable_bytes": on.unobservable,
            })
        };
        json!({
            "survey_interval_ns": self.interval.as_nanos() as u64,
            "cold_after_ns": COLD.min(self.watched).as_nanos() as u64,
            "memory": self.rows(tiers).map(row).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::survey::{BlockList, SurveySnapshot, TargetSurvey};
    use isotherm_core::{Figures, Node, TargetId};
    use isotherm_record::TargetInfo;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn tiers() -> Tiers {
        let node = |id, has_processors| Node {
            id: NodeId(id),
            size: 4 << 30,
            free: 1 << 30,
            has_processors,
            distances: [(NodeId(0), 10 + 10 * id), (NodeId(1), 20 - 10 * id)].into(),
        };
        Tiers::new([node(0, true), node(1, false)], &[])
    }

    /// A survey of three processes of two programs, this many seconds after the start.
    fn survey(second: u64) -> Event {
        let by_node = |mib: u64| -> Vec<NodeSums> {
            let sums = |present: u64| PageSums {
                figures: Figures {
                    present: present * MIB,
                    touched: present * MIB / 4,
                    unobservable: MIB,
                    ..Figures::default()
                },
                within: WINDOWS.map(|window| present * MIB / if window < COLD { 4 } else { 2 }),
                ..PageSums::default()
            };
            [(0, mib), (1, mib * 2)].map(|(node, mib)| NodeSums { node: NodeId(node), sums: sums(mib) }).into()
        };
        let target = |pid: u32, mib| TargetSurvey {
            id: TargetId::process(pid, Duration::ZERO),
            mappings: Arc::default(),
            by_mapping: Vec::new(),
            by_block: BlockList::default(),
            by_node: by_node(mib),
        };
        let targets = vec![target(7, 8), target(8, 40), target(9, 80)];
        let info = |command: &str| {
            let cgroup = command.starts_with("redis").then(|| "/system.slice".into());
            Arc::new(TargetInfo { command: command.into(), cgroup, ..TargetInfo::default() })
        };
        let infos = targets.iter().zip(["/bin/cat x", "redis-server *:1", "redis-server *:2"]);
        let infos = infos.map(|(target, command)| (target.id, info(command))).collect();
        let (time, interval) = (Duration::from_secs(second), Duration::from_secs(second.min(2)));
        let survey = SurveySnapshot { time, interval, targets, by_node: by_node(100), ..SurveySnapshot::default() };
        Event::Survey(Arc::new(SurveyRecord { survey, infos, ..SurveyRecord::default() }))
    }

    #[test]
    fn memory_is_told_by_program_and_node() {
        let mut surveys = Surveys::default();
        assert!(surveys.placed(Grouping::Program).is_none());
        [0, 2, 12].map(survey).iter().for_each(|event| surveys.event(event));
        let placed = surveys.placed(Grouping::Program).unwrap();
        let expected = "\
tier  node  resident       hot      warm      cold    unobs.  program
   0     0   120 MiB    30 MiB    30 MiB    58 MiB     2 MiB  redis-server (2 processes)
   1     1   240 MiB    60 MiB    60 MiB   118 MiB     2 MiB  redis-server (2 processes)
   0     0     8 MiB     2 MiB     2 MiB     3 MiB     1 MiB  cat
   1     1    16 MiB     4 MiB     4 MiB     7 MiB     1 MiB  cat
   0     0   100 MiB    25 MiB    25 MiB    49 MiB     1 MiB  all (3 processes)
   1     1   200 MiB    50 MiB    50 MiB    99 MiB     1 MiB  all (3 processes)

hot: accessed in the last 2 s; warm: in the last 10 s; cold: not for 10 s; unobs.: could not be observed
";
        assert_eq!(placed.text(&tiers()), expected);
        let json = placed.json(&tiers());
        assert_eq!((&json["memory"][3]["tier"], &json["memory"][3]["cold_bytes"]), (&json!(1), &json!(7 * MIB)));
    }

    #[test]
    fn memory_is_told_by_cgroup_as_well() {
        let mut surveys = Surveys::default();
        [0, 2, 12].map(survey).iter().for_each(|event| surveys.event(event));
        let placed = surveys.placed(Grouping::Cgroup).unwrap();
        let text = placed.text(&tiers());
        assert!(text.contains("unobs.  cgroup\n") && text.contains("  /system.slice (2 processes)\n"), "{text}");
        assert!(text.contains("  16 MiB     4 MiB     4 MiB     7 MiB     1 MiB  unknown\n"), "{text}");
        assert_eq!(placed.json(&tiers())["memory"][0]["cgroup"], json!("/system.slice"));
    }

    #[test]
    fn a_short_run_says_what_it_cannot_tell() {
        let mut surveys = Surveys::default();
        [0, 2].map(survey).iter().for_each(|event| surveys.event(event));
        let text = surveys.placed(Grouping::Program).unwrap().text(&tiers());
        assert!(text.contains("cold: not for 2 s") && text.contains("--duration"), "{text}");
    }
}
