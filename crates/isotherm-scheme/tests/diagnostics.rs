//! Errors in every field: the message has the position, says what was expected, and how to fix it.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use isotherm_scheme::{Diagnostics, Position, parse};

fn diagnostics(text: &str) -> Diagnostics {
    parse("f", text).unwrap_err()
}

/// Expects errors at these lines and columns, in this order, each with these words in its message.
#[track_caller]
fn wrong(text: &str, expected: &[(usize, usize, &str)]) {
    let diagnostics = diagnostics(text);
    let found: Vec<_> = diagnostics.iter().map(|found| (found.position.unwrap(), &found.message)).collect();
    let positions: Vec<_> = found.iter().map(|(Position { line, column }, _)| (*line, *column)).collect();
    assert_eq!(
        positions,
        expected.iter().map(|(line, column, _)| (*line, *column)).collect::<Vec<_>>(),
        "{diagnostics}"
    );
    for ((_, message), (_, _, words)) in found.iter().zip(expected) {
        assert!(message.contains(words), "{words:?} is not in: {message}");
    }
}

/// Expects an error at this column of `line`, in a scheme that is correct but for it.
#[track_caller]
fn field(line: &str, column: usize, words: &str) {
    wrong(&format!("schemes:\n  - action: pageout\n    {line}\n"), &[(3, column, words)]);
}

#[test]
fn names_of_fields() {
    wrong("scheme:\n  - action: stat\n", &[(1, 1, "did you mean schemes?")]);
    wrong("schemes:\n  - acton: stat\n", &[(2, 5, "did you mean action?")]);
    field("acces_rate: 5%", 5, "did you mean access_rate?");
    field("Quota: {bytes: 1M}", 5, "did you mean quota?");
    field("size: {mn: 2M}", 12, "did you mean min?");
    field("quota: {byte: 2M}", 13, "did you mean bytes?");
    field("colour: red", 5, "expected name, size, access_rate");
    wrong("schemes:\n  - size: 4K\n", &[(2, 5, "needs the field action")]);
    wrong("schemes:\n  - action: stat\n    action: cold\n", &[(3, 5, "already given in line 2")]);
}

#[test]
fn actions() {
    wrong("schemes:\n  - action: page_out\n", &[(2, 13, "did you mean pageout?")]);
    wrong("schemes:\n  - action: swap\n", &[(2, 13, "expected stat, willneed, cold, pageout")]);
    wrong("schemes:\n  - action: [stat]\n", &[(2, 13, "found a list")]);
    for action in ["hugepage_ahead", "nohugepage", "mlock", "munlock"] {
        wrong(&format!("schemes:\n  - action: {action}\n"), &[(2, 13, "`inside: true`")]);
        assert!(parse("f", &format!("schemes:\n  - action: {action}\n    inside: true\n")).is_ok());
    }
    field("inside: maybe", 13, "true or false");
}

#[test]
fn shared_quotas_and_looks() {
    let after = |first: &str, quota: &str| {
        format!("- {{name: a, action: cold{first}}}\n- {{name: b, action: cold, quota: {quota}}}\n")
    };
    let limited = ", quota: {bytes: 1M}";
    assert!(parse("f", &after(limited, "{shared_with: a}")).is_ok());
    wrong(&after(limited, "{shared_with: b}"), &[(2, 48, "no scheme before this one has the name \"b\"")]);
    wrong(&after("", "{shared_with: a}"), &[(2, 48, "has no bytes and no time to share")]);
    wrong(&after(limited, "{shared_with: a, time: 1ms}"), &[(2, 57, "has the time of the other scheme; leave this")]);
    let third = "- {name: c, action: cold, quota: {shared_with: b}}\n";
    wrong(&(after(limited, "{shared_with: a}") + third), &[(3, 48, "\"b\" shares the quota of another scheme")]);
    // What is wrong with the owner is told once.
    wrong(&after(", quota: {bytes: 0}", "{shared_with: a}"), &[(1, 42, "a quota of zero")]);
    wrong("schemes:\n  - action: promote\n    looks: 3\n", &[(3, 12, "a number of looks: 1 or 2")]);
    field("looks: 1", 12, "the action pageout has no looks");
    field("unobserved: perhaps", 17, "allow or deny");
    field("never_accessed: 3s", 21, "only demote and migrate_cold have never_accessed, and this is pageout");
    wrong("schemes:\n  - action: demote\n    never_accessed: 0s\n", &[(3, 21, "")]);
    field("makes_room_for: [a]", 21, "only demote and migrate_cold make room for others, and this is pageout");
    let room = |name: &str| {
        format!(
            "schemes:\n  - {{name: up, action: promote}}\n  - {{name: down, action: demote}}\n  \
                 - action: demote\n    makes_room_for: [{name}]\n"
        )
    };
    wrong(&room("none"), &[(5, 22, "no scheme before this one has the name \"none\"")]);
    wrong(&room("down"), &[(5, 22, "the scheme \"down\" does not move hot memory")]);
}

#[test]
fn target_nodes() {
    let to = |more: &str| format!("schemes:\n  - action: migrate_cold\n    {more}\n");
    wrong(
        "schemes:\n  - action: migrate_hot\n",
        &[(2, 13, "needs to know where to move memory; add `target_node: 1`")],
    );
    wrong("schemes:\n  - action: demote\n    target_node: 1\n", &[(3, 18, "use migrate_cold to name one")]);
    wrong("schemes:\n  - action: promote\n    target_node: 1\n", &[(3, 18, "use migrate_hot to name one")]);
    field("target_node: 1", 18, "the action pageout does not move memory between nodes");
    wrong(&to("target_node: -1"), &[(3, 18, "the number of a memory node, such as 1")]);
    wrong(&to("target_node: 1024"), &[(3, 18, "the number of a memory node")]);
    wrong(&to("target_node: fast"), &[(3, 18, "the number of a memory node")]);
    wrong(&to("target_node: []"), &[(3, 18, "there is no target node")]);
    wrong(&to("target_node: [1]"), &[(3, 19, "expected a target node, a map with node or weight")]);
    wrong(&to("target_node: [{weight: 1}]"), &[(3, 19, "needs the field node")]);
    wrong(&to("target_node: [{node: 1, weight: -2}]"), &[(3, 37, "a whole number from 1 to 1000")]);
    wrong(&to("target_node: [{node: 1, weight: 0}]"), &[(3, 37, "a whole number from 1 to 1000")]);
    wrong(&to("target_node: [{node: 1}, {node: 1}]"), &[(3, 18, "the target node 1 is given twice")]);
    assert!(parse("f", &to("target_node: [{node: 0, weight: 3}, {node: 1}]")).is_ok());
    wrong(&to("target_node: {first: [0]}"), &[(3, 19, "did you mean first_with_room?")]);
    wrong(&to("target_node: {first_with_room: []}"), &[(3, 36, "there is no target node")]);
    wrong(&to("target_node: {first_with_room: [0, 0]}"), &[(3, 36, "the target node 0 is given twice")]);
    wrong(&to("target_node: {first_with_room: [0, -1]}"), &[(3, 40, "the number of a memory node")]);
}

#[test]
fn conditions() {
    field("size: {min: 2M, max: 4K}", 11, "the minimum \"2M\" is larger than the maximum \"4K\"; swap");
    field("size: [max, min]", 11, "swap");
    field("size: 4X", 11, "a size such as 4K");
    field("size: [1, 2, 3]", 11, "two bounds");
    field("size: 99999P", 11, "too large: the most is 2^64 - 1 bytes");
    field("size: {min: -4K}", 17, "below zero");
    field("access_rate: 5", 18, "5 is more than all");
    field("access_rate: {min: 105%}", 24, "at most 100%");
    field("access_rate: {min: 0.6, max: 50%}", 18, "larger than the maximum");
    field("access_rate: often", 18, "a share such as 5%");
    field("age: 5", 10, "has no unit");
    field("age: {min: 5 fortnights}", 16, "a time such as");
    field("age: {min: 1h, max: 59m}", 10, "swap");
    field("apply_interval: 0s", 21, "above zero");
}

#[test]
fn quotas_and_goals() {
    field("quota: {}", 12, "has no limit");
    field("quota: {bytes: 0}", 20, "zero");
    field("quota: {time: 0ms}", 19, "zero");
    field("quota: {bytes: 1M, period: 0s}", 32, "above zero");
    field("quota: {time: 2s, period: 1s}", 19, "longer than the period of 1 s");
    field("quota: {bytes: 1M, weights: {size: 0, access_rate: 0, age: 0}}", 33, "all weights are zero");
    field("quota: {bytes: 1M, weights: {size: 1001}}", 40, "0 to 1000");
    field("quota: {bytes: 1M, weights: {size: -1}}", 40, "below zero");
    field("quota: {goals: {psi_some: 1ms}}", 20, "a list of goals");
    field("quota: {goals: [{psi: 1ms}]}", 22, "did you mean psi_some?");
    field("quota: {goals: [{psi_some: 1ms, free_memory: 5%}]}", 21, "one goal in each entry");
    field("quota: {goals: [{psi_some: 0s}]}", 32, "above zero");
    field("quota: {goals: [{free_memory: 100%}]}", 35, "below 100 %");
    field("quota: {goals: [{free_memory: 0%}]}", 35, "above zero");
    field("quota: {goals: [{node_mem_used: 50%}]}", 37, "a goal of a node, a map with node, cgroup or value");
    field("quota: {goals: [{node_mem_used: {node: 0}}]}", 37, "needs the field value");
    field("quota: {goals: [{node_mem_free: {node: 0, value: 100%}}]}", 37, "below 100 %");
    field("quota: {goals: [{node_mem_free: {node: 0, cgroup: a, value: 5%}}]}", 55, "such as /a");
    field("quota: {goals: [{fed: {from: f, value: 0}}]}", 44, "above zero");
    field("quota: {goals: [{fed: {from: f}}]}", 27, "needs the field value");
    field("quota: {goals: [{fed: {value: 1}}]}", 27, "one of from (a file) and metric (a name), found 0");
    field("quota: {goals: [{fed: {metric: a/b, value: 1}}]}", 36, "letters, digits, - _ and .");
}

#[test]
fn watermarks() {
    field("watermarks: {metric: free_memory, high: 50%, mid: 60%, low: 20%}", 55, "middle mark is above the high");
    field("watermarks: {metric: free_memory, high: 50%, mid: 40%, low: 45%}", 65, "low mark is above the middle");
    field("watermarks: {metric: free, high: 50%, mid: 40%, low: 20%}", 26, "did you mean free_memory?");
    field("watermarks: {metric: pressure, high: 50%, mid: 40%}", 17, "needs the field low");
    field("watermarks: {metric: pressure, high: 5, mid: 4%, low: 0%}", 42, "more than all");
    field("watermarks: {metric: pressure, interval: 0, high: 5%, mid: 4%, low: 0%}", 46, "above zero");
}

#[test]
fn filters() {
    field("filters: {reject: young}", 14, "a list of filters");
    field("filters: [young]", 15, "expected a filter, a map with allow or reject");
    field("filters: [{deny: young}]", 16, "expected allow or reject");
    field("filters: [{allow: file, reject: young}]", 15, "either allow or reject");
    field("filters: [{reject: yung}]", 24, "did you mean young?");
    field("filters: [{reject: mapping}]", 24, "needs a value");
    field("filters: [{reject: {maping: x}}]", 25, "did you mean mapping?");
    field("filters: [{reject: {mapping: x, command: y}}]", 24, "one kind of memory in each filter");
    field("filters: [{reject: {address: [0x2000, 0x1000]}}]", 34, "empty or reversed");
    field("filters: [{reject: {address: 0x1000}}]", 34, "two addresses");
    field("filters: [{reject: {process: init}}]", 34, "a process ID");
    field("filters: [{reject: {node: slow}}]", 31, "the number of a memory node");
    field("filters: [{reject: {cgroup: system.slice}}]", 33, "such as /system.slice");
}

#[test]
fn documents() {
    wrong("", &[(1, 1, "the file is empty")]);
    wrong("# only this\n", &[(1, 1, "the file is empty")]);
    wrong("schemes: []\n", &[(1, 10, "there is no scheme")]);
    wrong("schemes: pageout\n", &[(1, 10, "a list of schemes")]);
    wrong("schemes:\n\t- action: stat\n", &[(2, 2, "tabs")]);
    wrong("schemes:\n  - action: \"stat\n", &[(2, 13, "invalid YAML")]);
    wrong("schemes:\n  - &a\n    action: stat\n  - *a\n", &[(4, 5, "no aliases")]);
    wrong("schemes:\n  - action: stat\n---\nschemes:\n", &[(4, 1, "a second document")]);
    wrong(
        "schemes:\n  - action: stat\n    name: a\n  - action: cold\n    name: a\n",
        &[(5, 11, "the scheme in line 3 has the name \"a\" too")],
    );
    wrong(&format!("schemes: {}", "[".repeat(100)), &[(1, 42, "nested too deeply")]);
}

#[test]
fn lines() {
    wrong("4K max 0 0 5s max pagout\n", &[(1, 19, "did you mean pageout?")]);
    wrong("4K max 0 0 5s pageout\n", &[(1, 1, "expected 7 words, found 6")]);
    wrong("# first\n\n4K max 0 0 5 max pageout\n", &[(3, 12, "no unit")]);
    wrong("max min 0 0 5s max cold\n", &[(1, 1, "the minimum max is larger than the maximum min; swap")]);
    wrong("min max 0 200 5s max cold\n", &[(1, 11, "at most 100%")]);
    wrong("min max 0 12.5 5s max cold\n", &[(1, 11, "at most 100%, or of at most 1")]);
    wrong("min max 0 x 5s max cold\n", &[(1, 11, "min, max and null are no bound")]);
    wrong("min max 0 0 5s max cold 100M 1s\n", &[(1, 25, "write quotas and watermarks in YAML")]);
    wrong("4K max 0 0 5s max migrate_cold\n", &[(1, 19, "add the word node=1 after the action")]);
    wrong("4K max 0 0 5s max demote node=1\n", &[(1, 26, "use migrate_cold to name one")]);
    wrong("4K max 0 0 5s max migrate_cold node=-1\n", &[(1, 32, "the number of a memory node")]);
    wrong("4K max 0 0 5s max migrate_cold node=0:1,1:0\n", &[(1, 32, "from 1 to 1000")]);
    wrong("4K max 0 0 5s max migrate_cold node=0 node=1\n", &[(1, 39, "may end with node=1 and with inside")]);
    wrong("2M max 0 0 7s max nohugepage\n", &[(1, 19, "add the word inside at the end of the line")]);
}

#[test]
fn files_that_cannot_be_read() {
    let message = |path: &str| isotherm_scheme::read(path.as_ref()).unwrap_err().to_string();
    assert!(message("no/such/file").contains("no/such/file: cannot be read: No such file"));
    assert!(message("/").contains("cannot be read"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f");
    std::fs::write(&path, b"schemes:\xff").unwrap();
    assert!(isotherm_scheme::read(&path).unwrap_err().to_string().contains("not text in UTF-8"));
    std::fs::write(&path, vec![b' '; (1 << 20) + 1]).unwrap();
    assert!(isotherm_scheme::read(&path).unwrap_err().to_string().contains("more than 1048576 bytes"));
}
