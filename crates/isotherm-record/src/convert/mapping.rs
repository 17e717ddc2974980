//! A mapping in JSON.

use std::sync::Arc;

use isotherm_core::{Mapping, NodeId, TargetId};
use serde::Serialize;

use crate::permissions::letters_of;

/// A mapping, as in the recording's column.
#[derive(Serialize)]
pub(super) struct MappingOut {
    start: u64,
    end: u64,
    permissions: String,
    name: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<u32>,
}

impl MappingOut {
    pub(super) fn new(target: TargetId, mapping: &Mapping) -> Self {
        Self {
            start: mapping.range.start(),
            end: mapping.range.end(),
            permissions: letters_of(target, mapping.permissions),
            name: Arc::clone(&mapping.name),
            node: mapping.node.map(|NodeId(node)| node),
        }
    }
}
