//! Idle times as samples estimate them: the age of regions without an access.

use std::time::Duration;

use super::{ByName, IdleTime, edges};
use isotherm_record::Needs;

use crate::ReportError;
use crate::extent::shown_name;
use crate::groups::Grouping;
use crate::histogram::{Moment, Sizes};
use crate::parts::Parts;
use crate::source::{Accumulator, Seen, Selection, Share, Source, walk};
use crate::wss::Basis;

/// The idle times as samples estimate them.
pub(super) fn idle_time(
    source: &dyn Source,
    selection: &Selection,
    grouping: &Grouping,
) -> Result<IdleTime, ReportError> {
    let mut end = End::default();
    walk(source, selection, &mut [&mut end])?;
    let edges = edges(end.aggregation, end.time);
    let mut sampled =
        Sampled { grouping, edges, time: Duration::ZERO, names: ByName::default(), over_time: vec![], targets: 0 };
    walk(source, selection, &mut [&mut sampled])?;
    sampled.finish_snapshot();
    let Sampled { edges, names, mut over_time, targets, .. } = sampled;
    over_time.retain(|moment| moment.sizes.all() > 0);
    let total = names.total.clone();
    let [mappings, groups] = names.into_names(grouping);
    Ok(IdleTime {
        basis: Basis::Samples,
        time: end.time,
        edges,
        survey_interval: None,
        estimated_bytes: 0,
        counts_once: targets < 2,
        total,
        mappings,
        by: grouping.by(),
        groups,
        over_time,
    })
}

/// The last snapshot of a selection.
#[derive(Default)]
struct End {
    time: Duration,
    aggregation: Duration,
}

impl Accumulator for End {
    fn needs(&self) -> Needs {
        Needs { snapshots: true, ..Needs::NOTHING }
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let Seen::Row(visit) = event else { return Ok(()) };
        if visit.chosen {
            (self.time, self.aggregation) = (visit.row.time, visit.row.aggregation);
        }
        Ok(())
    }
}

struct Sampled<'a> {
    grouping: &'a Grouping,
    edges: Vec<Duration>,
    /// The time of the snapshot that is being added, its memory, and the number of its targets.
    time: Duration,
    names: ByName,
    targets: usize,
    over_time: Vec<Moment>,
}

impl Sampled<'_> {
    fn finish_snapshot(&mut self) {
        let mut sizes = Sizes::empty(self.edges.len());
        sizes.add(&self.names.total);
        self.over_time.push(Moment { time_ns: self.time.as_nanos() as u64, sizes });
    }
}

impl Accumulator for Sampled<'_> {
    fn needs(&self) -> Needs {
        Needs { snapshots: true, regions: true, ..Needs::NOTHING }
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let Seen::Row(visit) = event else { return Ok(()) };
        if !visit.chosen {
            return Ok(());
        }
        let row = &visit.row;
        if row.time != self.time {
            self.finish_snapshot();
            (self.time, self.names, self.targets) = (row.time, ByName::default(), 0);
        }
        self.targets += 1;
        let group = self.grouping.of_target(row.target.id);
        for (piece, bytes) in visit.present_pieces() {
            let share = Share::of(piece.region, row.samples, row.aggregation);
            let parts = Parts::of(piece.region, share, visit.hot());
            let of = |share: f64| (bytes as f64 * share).round() as u64;
            let idle = row.aggregation.saturating_mul(piece.region.age);
            let band = self.edges.partition_point(|&edge| edge <= idle).saturating_sub(1);
            let mut sizes = Sizes::empty(self.edges.len());
            sizes.bytes[band] = of(parts.cold);
            sizes.bytes[0] += of(parts.hot + parts.warm);
            (sizes.unobservable_bytes, sizes.unknown_bytes) = (of(parts.unobservable), of(parts.unknown));
            self.names.add(shown_name(&piece.mapping.label()), group, &sizes);
        }
        Ok(())
    }
}
