//! Reading a recording: its rows of targets.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Mapping, RegionSnapshot, TargetSnapshot};

use crate::batches::Batches;
use crate::decode::Kind;
use crate::id::StoredId;
use crate::source::Source;
use crate::target::RawRow;
use crate::{RecordError, Row, TargetInfo};

/// The name of mappings that are not known, because the recording is damaged.
const UNKNOWN: &str = "[unknown]";

/// The rows of a recording that are of targets, in the order of their recording. After an error there is no further
/// row.
///
/// Rows of the same target share what it is and its mappings, as long as these do not change.
#[derive(Debug)]
pub(crate) struct Rows {
    batches: Batches,
    targets: Targets,
}

/// What earlier rows have said.
#[derive(Debug, Default)]
struct Targets {
    known: HashMap<StoredId, Known>,
    /// The time of the last row, in nanoseconds.
    time_ns: u64,
}

#[derive(Debug)]
struct Known {
    info: Arc<TargetInfo>,
    mappings: Arc<[Mapping]>,
    /// The time of the last row of the target, in nanoseconds.
    seen: u64,
}

impl Rows {
    pub(crate) fn new(source: Source) -> Self {
        Self { batches: Batches::new(source), targets: Targets::default() }
    }

    /// Where they come from.
    pub(crate) fn batches(&mut self) -> &mut Batches {
        &mut self.batches
    }
}

impl Targets {
    /// Fills in what earlier rows of the target have said. If those rows may be missing, what is not known is left
    /// open: the target has no command, and its regions lie in mappings without a file.
    fn complete(&mut self, mut raw: RawRow, after_gap: bool) -> Result<Row, &'static str> {
        if raw.time_ns < self.time_ns {
            return Err("time goes backwards");
        }
        if raw.time_ns > self.time_ns {
            // A target that was missing in a snapshot begins anew.
            let last = self.time_ns;
            self.known.retain(|_, known| known.seen == last);
            self.time_ns = raw.time_ns;
        }
        if after_gap && !self.known.contains_key(&raw.id) {
            raw.info = raw.info.or_else(|| Some(TargetInfo::default()));
            raw.mappings = raw.mappings.or_else(|| Some(mappings_of(&raw.regions)));
        }
        let info = raw.info.map(Arc::new);
        let mappings: Option<Arc<[Mapping]>> = raw.mappings.map(Arc::from);
        let before = self.known.remove(&raw.id);
        let (info, mappings) = match before {
            Some(known) => (info.unwrap_or(known.info), mappings.unwrap_or(known.mappings)),
            None => (
                info.ok_or("the first row of a target does not say what it is")?,
                mappings.ok_or("the first row of a target has no mappings")?,
            ),
        };
        let known = Known { info: Arc::clone(&info), mappings: Arc::clone(&mappings), seen: raw.time_ns };
        self.known.insert(raw.id, known);
        Ok(Row {
            time: Duration::from_nanos(raw.time_ns),
            aggregation: Duration::from_nanos(raw.aggregation_ns),
            samples: raw.samples,
            target: TargetSnapshot { id: raw.id.target(&info), regions: raw.regions, mappings },
            info,
            cost: raw.cost,
        })
    }
}

/// Mappings that hold these regions, where the mappings are not known.
fn mappings_of(regions: &[RegionSnapshot]) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for region in regions {
        let range = region.range;
        match mappings.last_mut() {
            Some(last) if last.range.end() == range.start() => {
                last.range = AddrRange::new(last.range.start(), range.end()).unwrap_or(last.range);
            }
            _ => mappings.push(Mapping { name: UNKNOWN.into(), ..Mapping::anonymous(range) }),
        }
    }
    mappings
}

impl Iterator for Rows {
    type Item = Result<Row, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let targets = &mut self.targets;
        self.batches.find(|rows, index, after_gap| {
            if rows.kind(index) != Kind::Target {
                return Ok(None);
            }
            RawRow::read(rows.row(index))?.map(|raw| targets.complete(raw, after_gap)).transpose()
        })
    }
}
