//! The difference as JSON.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

use super::{Change, Changes, Compared, Diff, Quantity};

/// The document.
pub(super) struct Document<'a>(pub(super) &'a Diff);

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(diff) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("before", &side(&diff.before))?;
        map.serialize_entry("after", &side(&diff.after))?;
        map.serialize_entry("warnings", &diff.warnings)?;
        map.serialize_entry("source", &diff.basis)?;
        map.serialize_entry("window_ns", &nanoseconds(diff.window))?;
        map.serialize_entry("counted_once", &diff.counts_once)?;
        map.serialize_entry("total", &quantities(&diff.total))?;
        map.serialize_entry("mappings", &Named(&diff.mappings))?;
        map.serialize_entry("commands", &Named(&diff.programs))?;
        map.end()
    }
}

/// The changes of many names. Each is made when it is written, because a value takes much more memory than its text.
struct Named<'a>(&'a [Changes]);

impl Serialize for Named<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|changes| {
            let mut object = Map::from_iter([("name".to_owned(), Value::from(changes.name.as_str()))]);
            object.extend(quantities(changes));
            object
        }))
    }
}

fn side(side: &Compared) -> Value {
    json!({
        "recording": side.name,
        "from_ns": nanoseconds(side.from),
        "to_ns": nanoseconds(side.to),
        "snapshots": side.snapshots,
        "targets": side.targets,
        "probe": side.probe,
        "granularity": side.granularity,
        "surveys": side.surveys,
        "survey_interval_ns": side.survey_interval.map(nanoseconds),
        "sampling_interval_ns": side.sampling.map(nanoseconds),
        "aggregation_interval_ns": nanoseconds(side.aggregation),
    })
}

fn quantities(changes: &Changes) -> Map<String, Value> {
    let name = |quantity| match quantity {
        Quantity::WorkingSet => "working_set",
        Quantity::Resident => "resident",
        Quantity::Hot => "hot",
        Quantity::Cold => "cold",
    };
    Quantity::ALL.into_iter().map(|quantity| (name(quantity).to_owned(), change(changes.of(quantity)))).collect()
}

fn change(change: &Change) -> Value {
    json!({ "before": change.before, "after": change.after, "difference_bytes": change.difference() })
}

fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
