//! Which target of a recording each target of damo's is.
//!
//! damo knows a target by its index in a context. What it is, a process or physical memory, is said by the user, by what damo wrote
//! beside the file, or, failing both, by the number itself and the addresses.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use isotherm_core::TargetId;

use super::DamoError;
use super::file::Record;
use super::sidecar::{Context, Kdamond, Place};
use isotherm_record::{TargetInfo, identity};

/// No machine that is widely in use has physical memory from here on; processes nearly always have their stack above it.
const HIGHEST_PHYSICAL: u64 = 1 << 46;

/// The number of physical memory as a target of ours.
const PHYSICAL: u32 = 0;

/// What damo calls a target: its kdamond, context, scheme and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    kdamond: i64,
    context: i64,
    scheme: Option<i64>,
    target: Option<u64>,
}

impl Key {
    pub(super) fn of(record: &Record) -> Self {
        Self {
            kdamond: record.kdamond_idx.map_or(0, |index| index.0),
            context: record.context_idx.map_or(0, |index| index.0),
            scheme: record.scheme_idx.map(|index| index.0),
            target: record.target_id.map(|id| id.0),
        }
    }

    /// The parameters that it was watched with.
    pub(super) fn context(self, kdamonds: &[Kdamond]) -> Option<&Context> {
        let kdamond = kdamonds.get(usize::try_from(self.kdamond).ok()?)?;
        kdamond.contexts.get(usize::try_from(self.context).ok()?)
    }

    /// What it is called, fully if others have the same number.
    fn name(self, fully: bool) -> String {
        let mut name = self.target.map_or("damo's targets".to_owned(), |target| format!("damo's target {target}"));
        if fully {
            name += &format!(" of kdamond {}, context {}", self.kdamond, self.context);
            if let Some(scheme) = self.scheme {
                name += &format!(", scheme {scheme}");
            }
        }
        name
    }
}

/// What is known of a target before it gets its identity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) key: Key,
    /// The end of its highest region.
    pub(super) highest: u64,
}

/// Gives each target an identity of its own, in their order; `pids` are those that the user names.
///
/// # Errors
/// When the user names more than there are, or one twice.
pub(super) fn identify(
    path: &Path,
    targets: &[Known],
    kdamonds: &[Kdamond],
    pids: &[u32],
) -> Result<Vec<(TargetId, Arc<TargetInfo>)>, DamoError> {
    if pids.len() > targets.len() {
        let reason = format!("it has {} targets, fewer than there are process IDs for them", targets.len());
        return Err(DamoError::senseless(path, reason));
    }
    let mut taken = HashSet::new();
    if let Some(twice) = pids.iter().find(|&&pid| !taken.insert(pid)) {
        return Err(DamoError::senseless(path, format!("the process ID {twice} is given for two of its targets")));
    }

    let mut ids: Vec<Option<u32>> = pids.iter().copied().map(Some).collect();
    // Several schemes may have looked at the same memory: the first of them is it.
    ids.extend(targets[ids.len()..].iter().map(|target| beside(target, kdamonds).filter(|&id| taken.insert(id))));
    let sure: Vec<bool> = ids.iter().map(Option::is_some).collect();
    let from = first_number(targets);
    for (id, target) in ids.iter_mut().zip(targets) {
        *id = id.or_else(|| guess(target, from).filter(|&id| taken.insert(id)));
    }
    let mut numbers = HashMap::new();
    for target in targets {
        *numbers.entry(target.key.target).or_insert(0) += 1;
    }
    let mut free = 1..=u32::MAX;
    let mut identities = Vec::with_capacity(targets.len());
    for ((id, sure), target) in ids.into_iter().zip(sure).zip(targets) {
        let Some(id) = id.or_else(|| free.find(|&id| taken.insert(id))) else {
            return Err(DamoError::senseless(path, "it has more targets than there are numbers"));
        };
        let known = sure || id == PHYSICAL;
        let command = if known { String::new() } else { target.key.name(numbers[&target.key.target] > 1) };
        let info = TargetInfo { command, started_unix_ns: 0 };
        identities.push((identity(id, Some(&info)), Arc::new(info)));
    }
    Ok(identities)
}

/// What the parameters beside the file say that a target is.
fn beside(target: &Known, kdamonds: &[Kdamond]) -> Option<u32> {
    match target.key.context(kdamonds)?.place(target.key.target)? {
        Place::Physical => Some(PHYSICAL),
        Place::Process(pid) => Some(pid),
    }
}

/// What a target is by its number and addresses, if anything. Those that are not physical memory count from `first`.
fn guess(target: &Known, first: u32) -> Option<u32> {
    match target.key.target {
        Some(0) | None if can_be_physical(target) => Some(PHYSICAL),
        Some(number) => u32::try_from(number).ok()?.checked_add(first),
        None => None,
    }
}

/// What the number 0 of a process becomes: 1, and so all numbers are one higher then, to keep their order.
fn first_number(targets: &[Known]) -> u32 {
    targets.iter().any(|target| target.key.target == Some(0) && !can_be_physical(target)).into()
}

fn can_be_physical(target: &Known) -> bool {
    target.highest <= HIGHEST_PHYSICAL
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_record::pid_column;

    const STACK: u64 = 0x7ffd_0000_0000;

    fn target(target: Option<u64>, scheme: Option<i64>, highest: u64) -> Known {
        Known { key: Key { kdamond: 0, context: 0, scheme, target }, highest }
    }

    fn kdamonds(json: serde_json::Value) -> Vec<Kdamond> {
        serde_json::from_value(json).unwrap()
    }

    fn identified(targets: &[Known], kdamonds: &[Kdamond], pids: &[u32]) -> Vec<(u32, String)> {
        let identities = identify(Path::new("a"), targets, kdamonds, pids).unwrap();
        identities.iter().map(|(id, info)| (pid_column(*id), info.command.clone())).collect()
    }

    #[test]
    fn a_number_without_more_is_the_target_and_zero_is_physical_memory_if_the_addresses_can_be() {
        let targets = [target(Some(0), None, 1 << 33), target(Some(1), None, STACK)];
        let expected = [(0, String::new()), (1, "damo's target 1".into())];
        assert_eq!(identified(&targets, &[], &[]), expected);
        assert_eq!(identified(&[target(Some(0), None, STACK)], &[], &[]), [(1, "damo's target 0".into())]);
        let two = [target(Some(0), None, STACK), target(Some(1), None, STACK)];
        assert_eq!(identified(&two, &[], &[]), [(1, "damo's target 0".into()), (2, "damo's target 1".into())]);
        // A pointer, as of old kernels.
        let old = [target(Some(0xffff_8881_0000_0000), None, STACK)];
        assert_eq!(identified(&old, &[], &[])[0].0, 1);
    }

    #[test]
    fn what_lies_beside_the_file_knows_better_and_the_user_best() {
        let targets = [target(Some(0), None, STACK), target(Some(1), None, STACK)];
        let context = serde_json::json!([{"contexts": [{"ops": "vaddr", "targets": [{"pid": "4711"}, {"pid": 815}]}]}]);
        let kdamonds = kdamonds(context);
        assert_eq!(identified(&targets, &kdamonds, &[]), [(4711, String::new()), (815, String::new())]);
        assert_eq!(identified(&targets, &kdamonds, &[42]), [(42, String::new()), (815, String::new())]);
        assert!(identify(Path::new("a"), &targets, &kdamonds, &[42, 42]).is_err());
        assert!(identify(Path::new("a"), &targets, &kdamonds, &[1, 2, 3]).is_err());
    }

    #[test]
    fn what_several_schemes_saw_stays_apart() {
        let targets = [target(None, Some(0), 1 << 33), target(None, Some(1), 1 << 33)];
        let kdamonds = kdamonds(serde_json::json!([{"contexts": [{"ops": "paddr", "targets": [{"pid": null}]}]}]));
        let expected = [(0, String::new()), (1, "damo's targets of kdamond 0, context 0, scheme 1".into())];
        assert_eq!(identified(&targets, &kdamonds, &[]), expected);
    }
}
