//! The identity of each target: a process or physical memory.
//!
//! damo numbers the targets of a context. The identity comes from the user, from the file of parameters next to the
//! recording, or otherwise from the number and the addresses.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use isotherm_core::TargetId;
use isotherm_record::{TargetInfo, identity};

use super::ImportError;
use super::file::Record;
use super::sidecar::{Context, Kdamond, TargetKind};

/// The end of the addresses that can be physical memory: 64 TiB. Nearly every process has its stack above it.
const PHYSICAL_END: u64 = 1 << 46;

/// The target ID of physical memory.
const PHYSICAL: u32 = 0;

/// What identifies a target in a file: its kdamond, context, scheme and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TargetKey {
    kdamond: i64,
    context: i64,
    scheme: Option<i64>,
    target: Option<u64>,
}

impl TargetKey {
    pub(super) fn of(record: &Record) -> Self {
        Self {
            kdamond: record.kdamond_idx.map_or(0, |index| index.0),
            context: record.context_idx.map_or(0, |index| index.0),
            scheme: record.scheme_idx.map(|index| index.0),
            target: record.target_id.map(|id| id.0),
        }
    }

    /// The parameters of its context.
    pub(super) fn context(self, kdamonds: &[Kdamond]) -> Option<&Context> {
        let kdamond = kdamonds.get(usize::try_from(self.kdamond).ok()?)?;
        kdamond.contexts.get(usize::try_from(self.context).ok()?)
    }

    /// What damo calls the target. The name is `full` if another target has the same number.
    fn name(self, full: bool) -> String {
        let mut name = self.target.map_or("damo's targets".to_owned(), |target| format!("damo's target {target}"));
        if full {
            name += &format!(" of kdamond {}, context {}", self.kdamond, self.context);
            if let Some(scheme) = self.scheme {
                name += &format!(", scheme {scheme}");
            }
        }
        name
    }
}

/// A target that has no identity yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unidentified {
    pub(super) key: TargetKey,
    /// The end of its highest region.
    pub(super) end: u64,
}

/// Gives each target an identity of its own. `pids` are the identities that the user gives to the first targets.
///
/// # Errors
/// When there are more `pids` than targets, or a process ID occurs twice.
pub(super) fn identify(
    path: &Path,
    targets: &[Unidentified],
    kdamonds: &[Kdamond],
    pids: &[u32],
) -> Result<Vec<(TargetId, Arc<TargetInfo>)>, ImportError> {
    if pids.len() > targets.len() {
        let (targets, pids) = (targets.len(), pids.len());
        let reason = format!("it has {targets} targets, and --pid is given {pids} times; give it once for each target");
        return Err(ImportError::invalid(path, reason));
    }
    let mut taken = HashSet::new();
    if let Some(twice) = pids.iter().find(|&&pid| !taken.insert(pid)) {
        return Err(ImportError::invalid(
            path,
            format!("--pid {twice} is given twice; give each target its own process ID"),
        ));
    }

    let mut ids: Vec<Option<u32>> = pids.iter().copied().map(Some).collect();
    // Several schemes may have recorded the same memory. The first of them gets its identity.
    let in_parameters = |target| from_parameters(target, kdamonds).filter(|&id| taken.insert(id));
    ids.extend(targets[pids.len()..].iter().map(in_parameters));
    let is_known: Vec<bool> = ids.iter().map(Option::is_some).collect();
    let first = first_number(targets);
    for (id, target) in ids.iter_mut().zip(targets) {
        *id = id.or_else(|| guess(target, first).filter(|&id| taken.insert(id)));
    }
    let mut numbers = HashMap::new();
    for target in targets {
        *numbers.entry(target.key.target).or_insert(0) += 1;
    }
    let mut free = 1..=u32::MAX;
    let mut identities = Vec::with_capacity(targets.len());
    for ((id, is_known), target) in ids.into_iter().zip(is_known).zip(targets) {
        let Some(id) = id.or_else(|| free.find(|&id| taken.insert(id))) else {
            return Err(ImportError::invalid(path, "it has more than 2^32 targets"));
        };
        let command =
            if is_known || id == PHYSICAL { String::new() } else { target.key.name(numbers[&target.key.target] > 1) };
        let info = TargetInfo { command, ..TargetInfo::default() };
        identities.push((identity(id, Some(&info)), Arc::new(info)));
    }
    Ok(identities)
}

/// The identity of a target by the parameters of the run.
fn from_parameters(target: &Unidentified, kdamonds: &[Kdamond]) -> Option<u32> {
    match target.key.context(kdamonds)?.target(target.key.target)? {
        TargetKind::PhysicalMemory => Some(PHYSICAL),
        TargetKind::Process(pid) => Some(pid),
    }
}

/// The identity of a target by its number and addresses. Numbers of processes are counted from `first`.
fn guess(target: &Unidentified, first: u32) -> Option<u32> {
    match target.key.target {
        Some(0) | None if can_be_physical(target) => Some(PHYSICAL),
        Some(number) => u32::try_from(number).ok()?.checked_add(first),
        None => None,
    }
}

/// The target ID of number 0: 1 if that is a process, because 0 is physical memory. All numbers then are one higher.
fn first_number(targets: &[Unidentified]) -> u32 {
    targets.iter().any(|target| target.key.target == Some(0) && !can_be_physical(target)).into()
}

fn can_be_physical(target: &Unidentified) -> bool {
    target.end <= PHYSICAL_END
}

#[cfg(test)]
mod tests {
    use isotherm_record::pid_column;

    use super::*;

    const STACK: u64 = 0x7ffd_0000_0000;

    fn target(target: Option<u64>, scheme: Option<i64>, end: u64) -> Unidentified {
        Unidentified { key: TargetKey { kdamond: 0, context: 0, scheme, target }, end }
    }

    fn kdamonds(json: serde_json::Value) -> Vec<Kdamond> {
        serde_json::from_value(json).unwrap()
    }

    fn identified(targets: &[Unidentified], kdamonds: &[Kdamond], pids: &[u32]) -> Vec<(u32, String)> {
        let identities = identify(Path::new("a"), targets, kdamonds, pids).unwrap();
        identities.iter().map(|(id, info)| (pid_column(*id), info.command.clone())).collect()
    }

    #[test]
    fn the_number_is_the_target_id_and_zero_is_physical_memory_if_the_addresses_can_be() {
        let targets = [target(Some(0), None, 1 << 33), target(Some(1), None, STACK)];
        let expected = [(0, String::new()), (1, "damo's target 1".into())];
        assert_eq!(identified(&targets, &[], &[]), expected);
        assert_eq!(identified(&[target(Some(0), None, STACK)], &[], &[]), [(1, "damo's target 0".into())]);
        let two = [target(Some(0), None, STACK), target(Some(1), None, STACK)];
        assert_eq!(identified(&two, &[], &[]), [(1, "damo's target 0".into()), (2, "damo's target 1".into())]);
        // Old kernels write a pointer.
        let old = [target(Some(0xffff_8881_0000_0000), None, STACK)];
        assert_eq!(identified(&old, &[], &[])[0].0, 1);
    }

    #[test]
    fn the_parameters_take_precedence_over_the_number_and_the_user_over_both() {
        let targets = [target(Some(0), None, STACK), target(Some(1), None, STACK)];
        let context = serde_json::json!([{"contexts": [{"ops": "vaddr", "targets": [{"pid": "4711"}, {"pid": 815}]}]}]);
        let kdamonds = kdamonds(context);
        assert_eq!(identified(&targets, &kdamonds, &[]), [(4711, String::new()), (815, String::new())]);
        assert_eq!(identified(&targets, &kdamonds, &[42]), [(42, String::new()), (815, String::new())]);
        assert!(identify(Path::new("a"), &targets, &kdamonds, &[42, 42]).is_err());
        assert!(identify(Path::new("a"), &targets, &kdamonds, &[1, 2, 3]).is_err());
    }

    #[test]
    fn records_of_several_schemes_are_separate_targets() {
        let targets = [target(None, Some(0), 1 << 33), target(None, Some(1), 1 << 33)];
        let kdamonds = kdamonds(serde_json::json!([{"contexts": [{"ops": "paddr", "targets": [{"pid": null}]}]}]));
        let expected = [(0, String::new()), (1, "damo's targets of kdamond 0, context 0, scheme 1".into())];
        assert_eq!(identified(&targets, &kdamonds, &[]), expected);
    }
}
