//! What each cgroup has needed over time, from surveys.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use isotherm_core::TargetId;
use isotherm_record::Needs;

use super::{MOST_HELD, Need};
use crate::ReportError;
use crate::source::{Accumulator, Seen, Selection, Source, walk};
use crate::wss::{Amount, Surveyed, Total};

/// What a cgroup has needed over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupNeeds {
    /// Its path. `None` if the cgroups of its targets are not known.
    pub path: Option<String>,
    /// Whether each page counts once. Otherwise, what its processes share counts for each.
    pub counted_once: bool,
    /// The needs, in the order of time. Times of which much of the memory is unknown are left out.
    pub needs: Vec<Need>,
}

/// What each cgroup of a selection has needed within `window`, which is one of
/// [`WINDOWS`](isotherm_core::survey::WINDOWS), in the order of their paths. `name` says which cgroup the memory of one
/// counts for.
///
/// # Errors
/// If the source cannot be read. Without surveys there are no needs.
pub fn needs(
    source: &dyn Source,
    selection: &Selection,
    window: Duration,
    name: &dyn Fn(&str) -> String,
) -> Result<Vec<CgroupNeeds>, ReportError> {
    let mut found = WithCgroups { surveyed: Surveyed::new(selection), of_target: BTreeMap::new() };
    match walk(source, selection, &mut [&mut found]) {
        // There may be surveys all the same.
        Err(ReportError::NothingRecorded { .. } | ReportError::NothingMatches { .. }) => {}
        walked => walked?,
    }
    let Some(wss) = found.surveyed.wss(Some(window)) else { return Ok(Vec::new()) };
    let of_target: BTreeMap<TargetId, Option<String>> =
        found.of_target.into_iter().map(|(id, path)| (id, path.map(|path| name(&path)))).collect();
    let paths: BTreeSet<&Option<String>> = of_target.values().collect();
    if paths.len() == 1 {
        let path = paths.into_iter().next().cloned().flatten();
        return Ok(vec![CgroupNeeds { path, counted_once: wss.counts_once(), needs: of_totals(&wss.sums()) }]);
    }
    let of_path = |path: &Option<String>| {
        let is_of = |id: TargetId| of_target.get(&id) == Some(path);
        let members = of_target.values().filter(|other| *other == path).count();
        CgroupNeeds { path: path.clone(), counted_once: members < 2, needs: of_totals(&wss.sums_of(is_of)) }
    };
    Ok(paths.into_iter().map(of_path).collect())
}

fn of_totals(totals: &[Total]) -> Vec<Need> {
    let mut before: Option<Duration> = None;
    let known = totals.iter().filter_map(|total| {
        let since = before.replace(total.time).map_or(total.span, |before| total.time.saturating_sub(before));
        let held = since.min(MOST_HELD);
        (!total.warm_up).then(|| Need { time: total.time, held, bytes: total.amount.needed() })
    });
    known.collect()
}

impl Amount {
    /// The bytes that may be in use. The accessed bytes hold a part of the unknown ones already, which counts twice
    /// here, so that it is not too little.
    pub(crate) fn needed(&self) -> u64 {
        if let Some(high) = self.high_bytes {
            return high;
        }
        let (unobservable, unknown) = (self.unobservable_bytes.unwrap_or(0), self.unknown_bytes.unwrap_or(0));
        let needed = self.bytes.saturating_add(unobservable).saturating_add(unknown);
        needed.min(self.present_bytes.unwrap_or(u64::MAX))
    }
}

/// What surveys say, and the cgroup of each target.
struct WithCgroups {
    surveyed: Surveyed,
    of_target: BTreeMap<TargetId, Option<String>>,
}

impl Accumulator for WithCgroups {
    fn needs(&self) -> Needs {
        self.surveyed.needs()
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        if let Seen::Survey(record) = event {
            for (target, info) in record.described() {
                let known = self.of_target.entry(target.id).or_default();
                // A process keeps its cgroup, in general.
                *known = info.cgroup.clone().or_else(|| known.take());
            }
        }
        self.surveyed.event(event)
    }
}
