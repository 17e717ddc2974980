//! How much memory is on each NUMA node, as surveys found it.

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_core::NodeId;
use isotherm_core::survey::{NodeSums, PageSums};
use schemars::JsonSchema;
use serde::Serialize;

use crate::resident::idle_bytes;

/// Memory on a NUMA node. `None` is what is not known, because the surveys do not go back so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NodeMemory {
    /// The number of the node.
    pub node: u32,
    /// Bytes in memory: the mean over the surveys.
    pub resident_bytes: u64,
    /// Bytes that were accessed within a survey interval: the mean over the surveys.
    pub touched_bytes: u64,
    /// Bytes that were idle for at least 10 s at the last survey.
    pub idle_10s_bytes: Option<u64>,
    /// Bytes that were idle for at least 1 min at the last survey.
    pub idle_1m_bytes: Option<u64>,
    /// Bytes that were idle for at least 10 min at the last survey.
    pub idle_10m_bytes: Option<u64>,
}

/// Sums over surveys, by node.
#[derive(Debug, Default)]
pub(crate) struct OnNodes {
    nodes: BTreeMap<NodeId, Sums>,
    /// The last survey.
    last: Duration,
}

/// The sums of a node.
#[derive(Debug, Default)]
struct Sums {
    /// In bytes × nanoseconds of the survey intervals.
    all: PageSums<u128>,
    /// Those of the last survey that found something on the node, and its time.
    last: (Duration, PageSums),
}

impl OnNodes {
    /// Takes in what a survey found: of one target after the other, or of all targets together.
    pub(crate) fn add(&mut self, time: Duration, interval: Duration, found: &[NodeSums]) {
        self.last = time;
        for NodeSums { node, sums } in found {
            let of = self.nodes.entry(*node).or_default();
            of.all += sums.map(|bytes| u128::from(bytes) * interval.as_nanos());
            if of.last.0 != time {
                of.last = (time, PageSums::default());
            }
            of.last.1 += *sums;
        }
    }

    /// The means over `lived`, which are the intervals of the surveys together. The surveys go back `covered`.
    pub(crate) fn memory(&self, lived: Duration, covered: Duration) -> Vec<NodeMemory> {
        let mean = |sum: u128| (sum / lived.as_nanos().max(1)) as u64;
        let of_node = |(node, of): (&NodeId, &Sums)| {
            let last = if of.last.0 == self.last { of.last.1 } else { PageSums::default() };
            let [idle_10s_bytes, idle_1m_bytes, idle_10m_bytes] = idle_bytes(|| std::iter::once(last), covered);
            NodeMemory {
                node: node.0,
                resident_bytes: mean(of.all.figures.present),
                touched_bytes: mean(of.all.figures.touched),
                idle_10s_bytes,
                idle_1m_bytes,
                idle_10m_bytes,
            }
        };
        self.nodes.iter().map(of_node).collect()
    }
}
