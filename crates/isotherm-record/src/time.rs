//! Times as a recording counts them.

use std::time::Duration;

/// The time in nanoseconds. 64 bits hold 584 years.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
