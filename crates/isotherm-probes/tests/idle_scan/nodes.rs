//! Memory nodes: which of them are scanned, and the memory of each.

use isotherm_core::{NodeId, PAGE_SIZE};
use isotherm_kernel::Selection;
use isotherm_probes::idle_scan::{Detail, IdleFindings, Scan, Scope};

use crate::made::{ANON, LRU, Made, of, pacer};

/// A machine with two nodes of 128 frames. A process maps pages on both.
fn two_nodes() -> Made {
    let made = Made::new(256);
    made.nodes(128, &[0, 1]);
    let a = made.cgroup("sys/fs/cgroup/a");
    made.page([5, 6, 200, 201, 202], LRU | ANON, a);
    made.process(7, "/a", &[5, 6, 200, 201]);
    made
}

/// The idle and accessed pages of each node.
fn by_node(findings: &IdleFindings) -> Vec<(u32, u64, u64)> {
    let of = |node: &isotherm_probes::idle_scan::NodeIdle| {
        (node.node.unwrap().0, node.tally.idle / PAGE_SIZE, node.tally.accessed / PAGE_SIZE)
    };
    findings.nodes.iter().map(of).collect()
}

#[test]
fn only_the_memory_of_the_named_nodes_is_marked_and_counted() {
    let made = two_nodes();
    let scan = |nodes: &[u32]| {
        let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
        made.scan(Scope::All, Detail::default()).unwrap().of_nodes(&nodes)
    };
    let mut second = scan(&[1]).unwrap();
    second.mark(&mut pacer()).unwrap();
    assert_eq!(made.idle(), [200, 201, 202]);
    made.access([201]);
    let findings = made.read(&mut second);
    assert_eq!(of(&findings, "/a"), Some([2, 1, 0, 0]));
    assert_eq!(by_node(&findings), [(1, 2, 1)]);

    let mut both = scan(&[0, 1]).unwrap();
    both.mark(&mut pacer()).unwrap();
    made.access([5]);
    assert_eq!(by_node(&made.read(&mut both)), [(0, 1, 1), (1, 3, 0)]);
    let error = scan(&[0, 2]).unwrap_err().to_string();
    assert!(error.contains("node 2 has none of the memory") && error.contains("nodes: 0, 1"), "{error}");
}

#[test]
fn the_pages_of_a_process_on_other_nodes_are_left_out() {
    let made = two_nodes();
    let detail = Detail { processes: true, mappings: true };
    let scope = Scope::Processes(Selection::pids([7]).into());
    let mut scan = made.scan(scope, detail).unwrap().of_nodes(&[NodeId(1)]).unwrap();
    scan.mark(&mut pacer()).unwrap();
    assert_eq!(made.idle(), [200, 201]);
    let findings = made.read(&mut scan);
    let [process] = &findings.processes[..] else { panic!("{findings:?}") };
    let [mapping] = &process.mappings[..] else { panic!("{process:?}") };
    for tally in [&process.total, &mapping.tally, &findings.total] {
        assert_eq!((tally.size(), tally.idle), (2 * PAGE_SIZE, 2 * PAGE_SIZE));
    }
    assert_eq!(by_node(&findings), [(1, 2, 0)]);
}
