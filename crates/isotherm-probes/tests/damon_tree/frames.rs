//! Actions on page frames.

use isotherm_probes::damon::{ActedOnFrames, DamonError, FrameAction, act_on_frames};

use crate::made::{Made, range};

#[test]
fn a_scheme_is_applied_once_to_these_frames_and_nothing_is_left_behind() {
    let made = Made::new();
    made.context("schemes/0/stats/sz_tried", "12288\n");
    made.context("schemes/0/stats/sz_applied", "4096\n");
    let ranges = [range(0x1000, 0x3000), range(0x8000, 0x9000)];
    let acted = act_on_frames(made.places.clone(), FrameAction::PageOut, &ranges).unwrap();
    assert_eq!(acted, ActedOnFrames { tried: 12288, applied: 4096 });
    let read = |name: &str| made.read_context(name);
    assert_eq!((read("operations"), read("targets/0/regions/nr_regions")), ("paddr".into(), "2".into()));
    assert_eq!((read("schemes/0/action"), read("schemes/0/quotas/bytes")), ("pageout".into(), "12288".into()));
    assert_eq!(read("schemes/0/access_pattern/nr_accesses/max"), "0", "what is accessed is left alone");
    assert_eq!((made.read("nr_kdamonds"), made.read("0/state")), ("0".into(), "off".into()));
    assert!(!made.claim().exists());
}

#[test]
fn frames_of_which_the_kernel_leaves_some_alone_are_not_waited_for() {
    let made = Made::new();
    made.context("schemes/0/stats/sz_tried", "4096\n");
    let acted = act_on_frames(made.places.clone(), FrameAction::Cold, &[range(0x1000, 0x3000)]).unwrap();
    assert_eq!(acted, ActedOnFrames { tried: 4096, applied: 0 });
    assert_eq!(made.read_context("schemes/0/action"), "lru_deprio");
}

#[test]
fn nothing_is_written_while_another_program_uses_damon() {
    let made = Made::busy();
    let before = made.all();
    let refused = act_on_frames(made.places.clone(), FrameAction::PageOut, &[range(0x1000, 0x3000)]);
    assert!(matches!(refused, Err(DamonError::Busy(_))), "{refused:?}");
    assert_eq!(made.all(), before);
}
