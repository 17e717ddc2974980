//! The difference as JSON.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::{Amount, Change, Changes, Count};
use crate::schema::serialized_as;

/// The changes of each quantity.
#[derive(Serialize, JsonSchema)]
pub(super) struct Quantities {
    /// Bytes that were accessed within the window.
    working_set: Change,
    /// Bytes in memory; mapped bytes if the source is samples.
    resident: Change,
    /// Bytes that samples found accessed at least half of the time.
    hot: Change,
    /// Bytes that were not accessed.
    cold: Change,
}

/// Writes the change of each quantity.
pub(super) fn quantities<S: Serializer>(of: &[Change; Count::ALL.len()], to: S) -> Result<S::Ok, S::Error> {
    let [working_set, resident, hot, cold] = *of;
    Quantities { working_set, resident, hot, cold }.serialize(to)
}

/// Writes the changes without their name.
pub(super) fn unnamed<S: Serializer>(changes: &Changes, to: S) -> Result<S::Ok, S::Error> {
    quantities(&changes.of, to)
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Change")]
struct ChangeJson {
    /// What the first recording has. `None` if it does not have the name, or tells nothing of the quantity.
    before: Option<Amount>,
    /// What the second recording has.
    after: Option<Amount>,
    /// The mean after less the mean before. What is `None` counts as 0.
    difference_bytes: i64,
}

serialized_as!(Change, ChangeJson);

impl From<&Change> for ChangeJson {
    fn from(change: &Change) -> Self {
        Self { before: change.before, after: change.after, difference_bytes: change.difference() }
    }
}
