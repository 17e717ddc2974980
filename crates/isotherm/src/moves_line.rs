//! The live line of `isotherm tier run`: how full the fast nodes are, and how much memory moves.

use std::path::PathBuf;
use std::time::Duration;

use isotherm_core::scheme::{Action, Moves, NodePart};
use isotherm_core::units::{bytes, percent};
use isotherm_core::{NodeId, Tiers};
use isotherm_kernel::{node_size, node_used_share};
use isotherm_record::Activity;

/// Tells what schemes in both directions do.
pub struct MovesLine {
    root: PathBuf,
    fast: Vec<NodeId>,
    /// The time of the last activity, and the bytes that had been moved by then.
    last: (Duration, u64),
}

impl MovesLine {
    /// The line for these tiers. `root` stands for `/`.
    pub fn new(tiers: &Tiers, root: impl Into<PathBuf>) -> Self {
        let fast = tiers.tiers().first().cloned().unwrap_or_default();
        Self { root: root.into(), fast, last: (Duration::ZERO, 0) }
    }

    /// What an activity says, to be shown after its time.
    pub fn text(&mut self, activity: &Activity) -> String {
        let (mut up, mut down, mut watched, mut back) = (0, 0, 0, 0);
        for report in &activity.schemes {
            match Action::named(&report.action.name).and_then(|action| action.moves()) {
                Some(Moves::Hot) => up += report.total.applied_bytes,
                Some(Moves::Cold) => down += report.total.applied_bytes,
                None => continue,
            }
            watched += report.total.watched_bytes;
            back += report.total.returned_bytes;
        }
        let (then, before) = std::mem::replace(&mut self.last, (activity.time, up + down));
        let passed = activity.time.saturating_sub(then).as_secs_f64();
        let rate = if passed > 0.0 { (up + down).saturating_sub(before) as f64 / passed } else { 0.0 };
        let used = self.used().map_or(String::new(), |used| format!("  fast tier {} used", percent(used)));
        let back = if watched > 0 { percent(back as f64 / watched as f64) } else { "-".into() };
        format!("{used}  {}/s  up {}  down {}  back {back}", bytes(rate as u64), bytes(up), bytes(down))
    }

    /// The share of the fast nodes that is used.
    fn used(&self) -> Option<f64> {
        let (mut used, mut size) = (0.0, 0.0);
        for &node in &self.fast {
            let of_node = node_size(&self.root, node).ok()? as f64;
            used += node_used_share(&self.root, &NodePart { node, cgroup: None }).ok()? * of_node;
            size += of_node;
        }
        (size > 0.0).then_some(used / size)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::scheme::{Action, Report, Statistics};
    use isotherm_core::{Node, SystemMemory};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn activity(second: u64, [up, down]: [u64; 2]) -> Activity {
        let report = |action: Action, moved: u64| Report {
            total: Statistics {
                applied_bytes: moved,
                watched_bytes: moved,
                returned_bytes: moved / 16,
                ..Statistics::default()
            },
            ..Report::new(action.name(), action)
        };
        let schemes = vec![report(Action::Promote, up), report(Action::Demote, down), report(Action::Stat, 1)];
        Activity {
            time: Duration::from_secs(second),
            schemes,
            memory: Vec::new(),
            system: SystemMemory::default(),
            ..Activity::default()
        }
    }

    #[test]
    fn the_line_has_the_fill_the_rate_and_what_moved() {
        let root = tempfile::tempdir().unwrap();
        for (node, free) in [(0, 100), (1, 300)] {
            let directory = root.path().join(format!("sys/devices/system/node/node{node}"));
            std::fs::create_dir_all(&directory).unwrap();
            let meminfo = format!("Node {node} MemTotal: 1000 kB\nNode {node} MemFree: {free} kB\n");
            std::fs::write(directory.join("meminfo"), meminfo).unwrap();
        }
        let node = |id| Node {
            id: NodeId(id),
            size: 1 << 30,
            free: 0,
            has_processors: id < 2,
            distances: (0..3).map(|to| (NodeId(to), 20)).collect(),
        };
        let mut line = MovesLine::new(&Tiers::new((0..3).map(node), &[]), root.path());
        let first = line.text(&activity(0, [0, 0]));
        assert_eq!(first, "  fast tier 80 % used  0 B/s  up 0 B  down 0 B  back -");
        let text = line.text(&activity(4, [64 * MIB, 16 * MIB]));
        assert_eq!(text, "  fast tier 80 % used  20 MiB/s  up 64 MiB  down 16 MiB  back 6.2 %");
    }
}
