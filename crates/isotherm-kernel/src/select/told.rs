//! Names of containers in Kubernetes that a runtime has told.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use super::ContainerNames;

/// What was told last, by the ID of the container. Each process has one runtime to ask, if any, and many who look for
/// names.
static TOLD: RwLock<Option<HashMap<String, ContainerNames>>> = RwLock::new(None);

/// Sets what the runtime of the machine calls its containers, by their IDs, for all [`Containers`](super::Containers)
/// of the process that look for names from now on. What was set before is forgotten. Names in the logs of Kubernetes
/// come before these, and those in other files of runtimes after them.
pub fn tell_containers(names: HashMap<String, ContainerNames>) {
    *TOLD.write().unwrap_or_else(PoisonError::into_inner) = Some(names).filter(|names| !names.is_empty());
}

/// What the runtime has told of a container.
pub(super) fn told(id: &str) -> Option<ContainerNames> {
    TOLD.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(id).cloned()
}
