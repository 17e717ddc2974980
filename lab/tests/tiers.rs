//! Four memory nodes in three tiers: one node with processors, two slow ones, and one that is slower.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::thread;

use isotherm_core::{AddrRange, NodeId};
use isotherm_kernel::room_by_node;
use isotherm_lab::migration::{FAST, MIB, Memory, acting, end, reports, run_sh, scheme, share_on, wait_until_on};
use isotherm_lab::{EMULATED, Running, eventually, isotherm, result_file, succeed};
use serde_json::Value;

const NEAR: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);
const FAR: NodeId = NodeId(3);

/// A file in memory that takes up the room on some node.
struct Filling(NodeId);

impl Filling {
    /// Leaves about this much room on a node, counted above its watermarks.
    fn down_to(node: NodeId, room: u64) -> Self {
        let place = Self::place(node);
        let mount = format!("mkdir -p {place}; mount -t tmpfs -o size=8G,mpol=bind:{node} filling {place}");
        assert_eq!(run_sh(&mount), 0);
        let filling = Self(node);
        let mut file = File::create(format!("{place}/file")).unwrap();
        let chunk = vec![1; 2 * MIB as usize];
        while room_by_node(Path::new("/")).unwrap()[&node] > room {
            file.write_all(&chunk).unwrap();
        }
        filling
    }

    fn place(node: NodeId) -> String {
        format!("/tmp/filling-{node}")
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        run_sh(&format!("umount {}", Self::place(self.0)));
    }
}

/// The shares of `range` in this process on the four nodes.
fn shares(range: AddrRange) -> [f64; 4] {
    [FAST, NEAR, OTHER, FAR].map(|node| share_on(std::process::id(), range, node))
}

/// The tiers that isotherm finds, or those of `--tiers`, as lists of nodes.
fn tiers(options: &[&str]) -> Vec<Vec<u64>> {
    let list: Value =
        serde_json::from_str(&succeed(&[&["tier", "list", "--format", "json"], options].concat())).unwrap();
    let mut tiers = vec![Vec::new(); list["tiers"].as_u64().unwrap() as usize];
    for node in list["nodes"].as_array().unwrap() {
        tiers[node["tier"].as_u64().unwrap() as usize].push(node["node"].as_u64().unwrap());
    }
    tiers
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn four_nodes_are_three_tiers_by_distance_or_as_given() {
    assert_eq!(tiers(&[]), [vec![0], vec![1, 2], vec![3]]);
    assert_eq!(tiers(&["--tiers", "0,1/2/3"]), [vec![0, 1], vec![2], vec![3]]);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn memory_goes_down_and_up_one_tier_at_a_time_and_its_content_stays() {
    let memory = Memory::of(16 * MIB);
    let range = memory.range();
    let schemes = scheme("down", "access_rate: 0%, age: {min: 2s}, action: demote, quota: {bytes: 16M}", range)
        + &scheme("up", "access_rate: {min: 1%}, action: promote, quota: {bytes: 16M}", range);
    let rounds: u64 = thread::scope(|scope| {
        let over = memory.over_at_the_end();
        let thread = scope.spawn(|| memory.touch(0, 1));
        let run = Running::start(&mut acting("steps", &schemes, &[std::process::id()], "5m"));
        eventually("some memory is in the middle tier", || shares(range)[1] > 0.1);
        assert!(shares(range)[3] < 0.1, "no memory skips a tier");
        wait_until_on(FAR, range);
        memory.set_hot(true);
        wait_until_on(FAST, range);
        end(run);
        drop(over);
        thread.join().unwrap()
    });
    memory.check(&[rounds]);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn memory_goes_to_the_other_node_of_a_tier_if_the_nearest_is_full() {
    let memory = Memory::of(32 * MIB);
    let range = memory.range();
    for (name, action) in
        [("demoted", "action: demote"), ("named", "action: migrate_cold, target_node: {first_with_room: [1, 2]}")]
    {
        // Filled anew each time: other programs use some of the room in between.
        let _filling = Filling::down_to(NEAR, 46 * MIB);
        // What is on a slow node stays there: without the filter on nodes, it goes on to the next tier.
        let down = format!(
            "- {{name: down, access_rate: 0%, age: {{min: 1s}}, {action}, quota: {{bytes: 32M}}, \
             filters: [{{reject: {{not: {{node: {FAST}}}}}}}, {{allow: {{address: [{:#x}, {:#x}]}}}}]}}\n",
            range.start(),
            range.end()
        );
        let run = Running::start(&mut acting(name, &down, &[std::process::id()], "2m"));
        eventually("all memory has left the fast node", || shares(range)[0] < 0.05);
        end(run);
        let [_, near, other, _] = shares(range);
        println!("{name}: {near:.2} on the nearest node, {other:.2} on the other");
        assert!(near > 0.05 && other > 0.1 && near + other > 0.94, "{:?}", shares(range));
        assert!(reports(name)[0].total.applied_bytes > 30 * MIB);
        let up = "access_rate: 0%, age: {min: 1s}, action: migrate_cold, target_node: 0";
        let run = Running::start(&mut acting("back", &scheme("up", up, range), &[std::process::id()], "2m"));
        wait_until_on(FAST, range);
        end(run);
    }
    memory.check(&[0]);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn tier_run_obeys_the_tiers_that_are_given_and_takes_the_node_that_has_room() {
    const TIERS: [&str; 2] = ["--tiers", "0,1/2,3"];
    let config = succeed(&[&["tier", "config"], &TIERS[..]].concat());
    assert!(config.contains("first_with_room: [2, 3]"), "{config}");
    let file = result_file("given.yaml");
    fs::write(&file, &config).unwrap();
    succeed(&["scheme", "check", file.to_str().unwrap()]);

    let memory = Memory::of(40 * MIB);
    let range = memory.range();
    // Idle memory has to leave the fast node, and the nearest node of the slow tier has little room.
    let _filled = [Filling::down_to(OTHER, 40 * MIB), Filling::down_to(FAST, 24 * MIB)];
    let pid = std::process::id().to_string();
    let mut tier = isotherm(&["tier", "run", "--pid", &pid, "--survey", "2s", "--quiet"]);
    let run = Running::start(tier.args(TIERS).args(EMULATED));
    eventually("idle memory is on both nodes of the slow tier", || {
        let [_, _, other, far] = shares(range);
        other > 0.05 && far > 0.1
    });
    end(run);
    assert!(shares(range)[1] < 0.01, "node 1 is in the fast tier: {:?}", shares(range));
    memory.check(&[0]);
}
