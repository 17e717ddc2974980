//! The patterns of `isotherm workload`.

use std::time::Duration;

use isotherm_core::PAGE_SIZE;
use isotherm_sim::Pattern;

use crate::bytes;

/// Reads a pattern.
///
/// # Panics
/// If the result is not as documented.
pub fn pattern_toml(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    match Pattern::parse(text) {
        Ok(pattern) => {
            assert!(pattern.areas.iter().all(|area| area.size > 0 && area.size.is_multiple_of(PAGE_SIZE)));
            assert!(pattern.phases.iter().flat_map(|phase| &phase.touch).all(|touch| !touch.every.is_zero()));
            let phase = pattern.phase_at(Duration::from_secs(1));
            assert!(phase.touch.iter().all(|touch| pattern.area(&touch.area).is_some()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    bytes(&[
        "about = 'a'\n[[area]]\nname = 'a'\nsize = '1 MiB'\n[[area]]\nname = 'b'\nsize = 4096\n[[phase]]\n\
         time = '20ms'\ntouch = [{ area = 'a', every = '2ms', order = { strided = 2 } }]\nunmapped = ['b']\n[[phase]]\n\
         time = '1s'\n",
        include_str!("../../../crates/isotherm-sim/patterns/zipfian.toml"),
        include_str!("../../../crates/isotherm-sim/patterns/growing-and-shrinking.toml"),
    ])
}
