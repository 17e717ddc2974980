//! What all forms have in common: names, actions, and what a whole list of schemes must hold.

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_core::scheme::{Action, ActionKind, Scheme};

use crate::complaint::Complaints;
use crate::fields::one_of;
use crate::units::A_TIME;
use crate::{Complaint, Place, units};

/// The action of this name.
pub fn action(name: &str) -> Result<Action, String> {
    match name {
        "lru_prio" | "lru_deprio" => {
            return Err(format!(
                "{name} moves physical memory in the kernel's lists; the nearest here is willneed or cold"
            ));
        }
        "migrate_hot" | "migrate_cold" => {
            return Err(format!("{name}: isotherm does not migrate memory between nodes yet; take the scheme out"));
        }
        _ => {}
    }
    one_of(name, "action", &ActionKind::ALL.map(|kind| (kind.name(), kind.into())))
}

/// Complains of an action that is carried out inside the target where that is not allowed; `how` allows it.
pub fn may_act(action: Action, inside: bool, place: Place, how: &str, complaints: &mut Complaints) {
    if action.kind().needs_inside() && !inside {
        let message = format!(
            "{action} is carried out by a system call inside the target, which is stopped for it for a moment: \
             {how} to allow that"
        );
        complaints.push(Complaint::new(place, message));
    }
}

/// A time above zero.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let time = units::time(text, None)?;
    if time.is_zero() { Err(format!("this time must be above zero; write {A_TIME}")) } else { Ok(time) }
}

/// Complains of names that come twice; a name of none is made of the number.
#[derive(Default)]
pub struct Names(BTreeMap<String, Place>);

impl Names {
    /// The name of the `nth` scheme, from 0 on.
    pub fn name(
        &mut self,
        given: Option<(&str, Place)>,
        nth: usize,
        place: Place,
        complaints: &mut Complaints,
    ) -> String {
        let (name, place) =
            given.map_or_else(|| (format!("scheme-{}", nth + 1), place), |(name, at)| (name.into(), at));
        if let Some(first) = self.0.get(&name) {
            let message =
                format!("the name {name:?} is taken by the scheme of line {}; names tell reports apart", first.line);
            complaints.push(Complaint::new(place, message));
        }
        self.0.insert(name.clone(), place);
        name
    }
}

/// Complains if there is no scheme at all.
pub fn at_least_one(schemes: Vec<Option<Scheme>>, place: Place, complaints: &mut Complaints) -> Vec<Scheme> {
    if schemes.is_empty() {
        complaints.push(Complaint::new(place, "there is no scheme in it; write at least one"));
    }
    schemes.into_iter().flatten().collect()
}
