//! Which processes share one address space: `clone(2)` with `CLONE_VM` and without `CLONE_THREAD`, and `vfork(2)` until
//! the child executes a program.

#![allow(unsafe_code)]

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};

use isotherm_core::TargetId;
use rustix::io::Errno;

use crate::Member;

/// The address spaces of the members of a run.
#[derive(Debug, Default)]
pub(crate) struct SharedSpaces {
    /// A member for each address space, in the order of the kernel.
    order: Vec<TargetId>,
    /// The members whose address space was looked at, and which are not in the order.
    others: HashSet<TargetId>,
}

impl SharedSpaces {
    /// Finds the members that share the address space of another one, which [`Member::shares`] then names. Returns
    /// those of which that is news. The members `changed` may have another address space than the last time.
    pub(crate) fn find(
        &mut self,
        members: &mut BTreeMap<TargetId, Member>,
        changed: impl Fn(&TargetId) -> bool,
    ) -> Vec<TargetId> {
        self.order.retain(|id| members.contains_key(id) && !changed(id));
        let still_shares = |id: &TargetId, owner: TargetId| {
            members.contains_key(&owner) && compare(pid(*id), pid(owner)) == Ok(Some(Ordering::Equal))
        };
        self.others.retain(|id| {
            let owner = members.get(id).map(|member| member.shares);
            owner.is_some_and(|owner| owner.map_or(!changed(id), |owner| still_shares(id, owner)))
        });
        let known: HashSet<TargetId> = self.order.iter().copied().collect();
        let new = members.keys().filter(|id| !known.contains(id) && !self.others.contains(id));
        let new: Vec<TargetId> = new.copied().collect();
        let mut news = Vec::new();
        for id in new {
            let owner = self.place(id, members);
            let Some(member) = members.get_mut(&id) else { continue };
            if owner.is_some() && member.shares != owner {
                news.push(id);
            }
            member.shares = owner;
        }
        news
    }

    /// Gives a member its place in the order. If its address space is that of another member, returns which.
    fn place(&mut self, id: TargetId, members: &BTreeMap<TargetId, Member>) -> Option<TargetId> {
        let has_memory = |id: &TargetId| members.get(id).is_some_and(|of| of.process.pages_mapped() > Some(0));
        let (mut from, mut to) = (0, self.order.len());
        while from < to {
            let middle = (from + to) / 2;
            let other = self.order[middle];
            match compare(pid(id), pid(other)) {
                Ok(Some(Ordering::Less)) => to = middle,
                Ok(Some(Ordering::Greater)) => from = middle + 1,
                // Two processes whose main threads have ended have no address space to compare.
                Ok(Some(Ordering::Equal)) if has_memory(&id) && has_memory(&other) => {
                    self.others.insert(id);
                    return Some(other);
                }
                // One of them has ended, or the kernel does not compare.
                Ok(_) | Err(_) => {
                    self.others.insert(id);
                    return None;
                }
            }
        }
        self.order.insert(from, id);
        None
    }
}

fn pid(id: TargetId) -> u32 {
    id.pid().unwrap_or_default()
}

/// What kcmp(2) compares: the address spaces.
const KCMP_VM: libc::c_int = 1;

/// Compares the address spaces of two processes, in an order that stays the same. `None` if there is none.
///
/// # Errors
/// `SRCH` if there is no such process, `PERM` if access to one of them is not permitted, `NOSYS` without CONFIG_KCMP.
fn compare(one: u32, other: u32) -> Result<Option<Ordering>, Errno> {
    let (one, other) = (one as libc::pid_t, other as libc::pid_t);
    let none: libc::c_ulong = 0;
    // SAFETY: the kernel reads no memory of this process for it.
    let result = unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, none, none) };
    match result {
        0 => Ok(Some(Ordering::Equal)),
        1 => Ok(Some(Ordering::Less)),
        2 => Ok(Some(Ordering::Greater)),
        3.. => Ok(None),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn address_spaces_have_an_order() {
        let own = std::process::id();
        assert_eq!(compare(own, own), Ok(Some(Ordering::Equal)));
        let mut sleep = Command::new("sleep").arg("1000").spawn().unwrap();
        let order = compare(own, sleep.id()).unwrap().unwrap();
        assert_eq!(compare(sleep.id(), own), Ok(Some(order.reverse())));
        assert_ne!(order, Ordering::Equal);
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert_eq!(compare(own, sleep.id()), Err(Errno::SRCH));
    }
}
