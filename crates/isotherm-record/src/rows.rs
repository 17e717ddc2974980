//! Reading a recording: its rows of targets.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{Mapping, TargetSnapshot};

use crate::batches::Batches;
use crate::decode::Kind;
use crate::id::StoredId;
use crate::source::Source;
use crate::target::RawRow;
use crate::{RecordError, Row, TargetInfo};

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

    /// The error that the last row is wrong for this reason. There is no further row then.
    pub(crate) fn refuse(&mut self, reason: &'static str) -> RecordError {
        self.batches.refuse(reason)
    }
}

impl Targets {
    /// Fills in what earlier rows of the target have said.
    fn complete(&mut self, raw: RawRow) -> Result<Row, &'static str> {
        if raw.time_ns < self.time_ns {
            return Err("time goes backwards");
        }
        if raw.time_ns > self.time_ns {
            // A target that was missing in a snapshot begins anew.
            let last = self.time_ns;
            self.known.retain(|_, known| known.seen == last);
            self.time_ns = raw.time_ns;
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

impl Iterator for Rows {
    type Item = Result<Row, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let targets = &mut self.targets;
        self.batches.find(|rows, index| {
            if rows.kind(index) != Kind::Target {
                return Ok(None);
            }
            RawRow::read(rows.row(index))?.map(|raw| targets.complete(raw)).transpose()
        })
    }
}
