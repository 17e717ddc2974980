//! A round allocates nothing after its buffers have grown.

use isotherm_core::{AccessProbe, Observation};

use crate::counting::allocations;
use crate::made::*;

#[test]
fn a_round_allocates_nothing() {
    let made = Made::new(4096);
    (0..100).for_each(|page| made.set_page(page, PRESENT | (page * 37)));
    made.set_flags(1024, LRU | HEAD);
    (1025..1536).for_each(|frame| made.set_flags(frame, TAIL));
    let mut probe = made.probe(4096);
    let mut all = samples(PROCESS, (0..200).rev());
    all.extend(samples(PHYSICAL, (0..4096).step_by(5)));
    let mut answers = vec![Observation::Idle; all.len()];
    let mut counted = Vec::with_capacity(4);
    for _ in 0..4 {
        let before = allocations();
        probe.clear(&all).unwrap();
        let cleared = allocations() - before;
        made.access((0..4096).step_by(64));
        let before = allocations();
        probe.read(&all, &mut answers).unwrap();
        counted.push(cleared + allocations() - before);
    }
    assert!(answers.contains(&Observation::Accessed) && answers.contains(&Observation::Idle));
    assert_eq!(counted[1..], [0, 0, 0]);
}
