//! The time of day.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time of day in nanoseconds since the Unix epoch.
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}
