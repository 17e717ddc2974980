//! The column `activity`: what schemes did and how much memory is in use, in rows of their own between those of targets.
//!
//! Of such a row nothing else says anything: it has no target, no regions and no samples. Its `time_ns` is that of the row before it, so
//! that times never go backwards although an activity may become known after snapshots that are newer; when it was stands
//! in the activity.

mod decode;
mod encode;
mod fields;
mod identities;

pub(crate) use decode::at;
pub(crate) use encode::{array, bytes};
pub(crate) use fields::fields;
pub(crate) use identities::Identities;
