//! The identity of a target in JSON: as in the recording's column.

use std::sync::Arc;

use isotherm_core::TargetId;
use serde::Serialize;

use crate::columns;
use crate::id::StoredId;

/// The identity of a target, as in the recording's column.
#[derive(Serialize)]
pub(super) struct IdOut {
    r#type: Arc<str>,
    pid: Option<u32>,
    start_ns: Option<u64>,
    cgroup: Option<u64>,
}

impl IdOut {
    pub(super) fn new(id: TargetId, from_boot: bool) -> Self {
        let columns::Id { kind, pid, start_ns, cgroup } = StoredId::new(id, from_boot).column();
        Self { r#type: kind, pid, start_ns, cgroup }
    }
}
