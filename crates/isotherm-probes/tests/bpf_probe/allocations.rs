//! A round allocates nothing after its buffers have grown.

use isotherm_core::AccessProbe;

use crate::counting::allocations;
use crate::target::Target;
use crate::watch::*;

#[test]
fn a_round_allocates_nothing() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let small = target.map("small", 4 * MIB);
    let locked = target.map("locked", MIB);
    // Memory that appears later is swept in a round.
    target.write(small, 4 * MIB);
    target.write(locked, MIB);
    update(&mut probe, &[&target]);
    let mut samples = pages(&target, small, 4 * MIB);
    samples.extend(pages(&target, locked, MIB));
    let mut answers = vec![Idle; samples.len()];
    let mut counted = Vec::with_capacity(4);
    for _ in 0..4 {
        target.write(small, 4 * MIB);
        target.write(locked, MIB);
        let before = allocations();
        probe.clear(&samples).unwrap();
        probe.read(&samples, &mut answers).unwrap();
        counted.push(allocations() - before);
    }
    assert_eq!(counted[1..], [0, 0, 0]);
}
