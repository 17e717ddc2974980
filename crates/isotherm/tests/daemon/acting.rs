//! Groups that act: goals of the user's own metrics, and limits.

use std::path::Path;

use isotherm_testing::installed_or_skip;
use serde_json::{Value, json};

use super::Running;
use crate::common::{Kept, eventually, python};

const MIB: u64 = 1 << 20;

#[test]
fn a_program_feeds_the_metric_that_a_goal_is_about() {
    let goal = |period: &str| format!("quota: {{period: {period}, goals: [{{fed: {{metric: late, value: 10}}}}]}}");
    let scheme = |period| format!("    schemes: [{{name: s, action: stat, {}}}]\n", goal(period));
    let running = Running::new(&scheme("100ms"));
    let quota = || running.get("/v1/groups/a/schemes")[0]["quota_bytes"].as_u64();
    eventually("the scheme was applied", || quota().is_some());
    let first = quota().unwrap();
    let status = running.said(&["status", "a"]);
    assert!(status.contains("the metric late is to be 10, and has no value; isotherm ctl feed"), "{status}");
    assert_eq!(running.get("/v1/groups/a/fed")[0]["value"], Value::Null);

    running.said(&["feed", "a", "late", "1"]);
    eventually("the quota grows as the goal is not reached", || quota() > Some(first * 2));
    let goals = running.get("/v1/groups/a/fed");
    assert_eq!(
        (&goals[0]["metric"], &goals[0]["value"], &goals[0]["target"]),
        (&json!("late"), &json!(1.0), &json!(10.0))
    );
    assert!(running.said(&["status", "a"]).contains("the metric late is to be 10, and is 1, fed "));
    running.said(&["feed", "a", "late", "100"]);
    eventually("the quota shrinks", || quota() < Some(first));
    assert!(running.get("/v1/groups/a/schemes")[0]["goal_score"].as_f64() > Some(9.0));

    running.said(&["feed", "a", "late", "1", "--for", "1ms"]);
    eventually("the value is not valid any more", || running.get("/v1/groups/a/fed")[0]["value"] == Value::Null);
    let (status, detail) = running.refused("PUT", "/v1/groups/a/fed/early", json!({ "value": 1 }));
    assert!(status == 404 && detail.contains("metric: early") && detail.contains("there is late"), "{detail}");
    let (status, detail) = running.refused("PUT", "/v1/groups/a/fed/late", json!({ "value": "nan" }));
    assert!(status == 422 && detail.contains("finite"), "{detail}");
    let log = running.place.text("log");
    assert!(log.contains("/fed/{metric} a early: refused") && !log.contains("/fed/{metric} a late\n"), "{log}");

    // Only a daemon is fed.
    std::fs::write(running.place.path("s.yaml"), format!("- {{name: s, action: stat, {}}}\n", goal("1s"))).unwrap();
    let pid = running.target.0.id().to_string();
    let refused = running.place.run(&["run", "--schemes", "s.yaml", "--pid", &pid, "--duration", "1s"]);
    assert!(refused.status == 1 && refused.err.contains("isotherm ctl feed"), "{refused:?}");
    running.end();
}

/// A process that has read a file of 64 MiB, and uses it no more.
fn reader(file: &Path) -> Result<Kept, String> {
    std::fs::write(file, vec![7; 64 << 20]).and_then(|()| std::fs::File::open(file)?.sync_all()).unwrap();
    let script = format!(
        "file = open('{}', 'rb')\n\
         memory = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)\n\
         sum(memory[at] for at in range(0, len(memory), 4096))\n\
         print('ready', flush=True)\n\
         time.sleep(600)",
        file.display()
    );
    python(&script, |_| ())
}

/// The bytes of the file that the process has in its memory.
fn resident(pid: u32, file: &str) -> u64 {
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mapping = smaps.lines().skip_while(|line| !line.ends_with(file)).find(|line| line.starts_with("Rss:"));
    mapping.unwrap().split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn no_scheme_of_a_file_or_of_a_request_takes_more_out_than_its_group_allows() {
    let filters = "filters: [{allow: {mapping: '*.data'}}]";
    let scheme = |name: &str| format!("- {{name: {name}, access_rate: 0%, age: 1s.., action: pageout, {filters}}}\n");
    let place = crate::common::Place::new();
    let process = installed_or_skip!(reader(&place.path("a.data")));
    let pid = process.0.id();
    std::fs::write(place.path("schemes.yaml"), scheme("of-the-file")).unwrap();
    let limits = "{bytes_per_second: 8M, most_out: 16M}";
    let file = place.path("schemes.yaml");
    let group = format!("  - name: b\n    select: {{pid: [{pid}]}}\n    act: true\n    limits: {limits}\n");
    let running = Running::new(&format!("{group}    scheme_file: {}\n", file.display()));
    let out = || 64 * MIB - resident(pid, "a.data");
    let status = || running.get("/v1/groups/b");
    let within = |what: &str, done: &dyn Fn() -> bool| {
        eventually(what, || {
            assert!(out() <= 16 * MIB, "{} bytes are out", out());
            done()
        });
    };
    within("what the file may take is out", &|| out() == 16 * MIB);
    within("the daemon knows it", &|| status()["out_bytes"] == 16 * MIB);
    assert!(running.said(&["status", "b"]).contains("16 MiB out of memory, at most 16 MiB"));
    let surveys = || {
        let metrics = running.said(&["metrics"]);
        let line = metrics.lines().find(|line| line.starts_with("isotherm_surveys_total{group=\"b\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or(0.0)
    };

    // Neither other schemes nor another run take more.
    std::fs::write(place.path("other.yaml"), scheme("of-a-request")).unwrap();
    running.said(&["set", "b", "--schemes", place.path("other.yaml").to_str().unwrap()]);
    within("the schemes of the request are in force", &|| status()["schemes"][0]["name"] == "of-a-request");
    let before = surveys();
    within("they had time", &|| surveys() > before + 3.0);
    running.said(&["pause", "b"]);
    running.said(&["resume", "b"]);
    within("the file is in force again", &|| status()["schemes"][0]["name"] == "of-the-file");
    let before = surveys();
    within("it had time", &|| surveys() > before + 3.0);
    // Nor does another configuration that a request brings.
    let mut settings = status()["settings"].clone();
    settings["limits"] = json!({});
    running.client.ask("PUT", "/v1/groups/b", Some(settings.to_string())).unwrap();
    assert_eq!(status()["limits"]["most_out"], "16 MiB");
    within("the file is in force once more", &|| status()["schemes"][0]["name"] == "of-the-file");
    let before = surveys();
    within("it had time again", &|| surveys() > before + 3.0);
    let mut settings = running.get("/v1/groups/a")["settings"].clone();
    settings["act"] = true.into();
    let (refused, detail) = running.refused("PUT", "/v1/groups/a", settings);
    assert!(refused == 422 && detail.contains("which no request changes"), "{detail}");
    let metrics = running.said(&["metrics"]);
    assert!(metrics.contains("isotherm_group_out_bytes{group=\"b\"} 16777216"), "{metrics}");
    running.end();
}

#[test]
fn a_group_of_files_drops_their_page_cache_and_one_of_physical_memory_is_watched_beside_it() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("cached");
    std::fs::write(&path, vec![7; 4 << 20]).and_then(|()| std::fs::File::open(&path)?.sync_all()).unwrap();
    let files = directory.path().display();
    let scheme = "{name: old, action: pageout, access_rate: 0%, age: 1s.., unobserved: allow}";
    let running = Running::new(&format!(
        "  - name: machine\n    physical: true\n  - name: data\n    files: ['{files}']\n    act: true\n    \
         schemes: [{scheme}]\n"
    ));
    let dropped = || running.get("/v1/groups/data/schemes")[0]["freed_bytes"].as_u64();
    eventually("page cache of the file is dropped", || dropped() > Some(0));
    let resident = |group: &str| running.get(&format!("/v1/groups/{group}"))["memory"]["resident"].as_u64();
    eventually("it is gone", || resident("data") == Some(0));
    eventually("physical memory was surveyed", || resident("machine") > Some(64 * MIB));
    for (group, watched) in [("data", "files"), ("machine", "physical memory")] {
        let status = running.said(&["status", group]);
        assert!(status.starts_with(&format!("{group}  watching  {watched}  ")), "{status}");
        assert_eq!(running.get(&format!("/v1/groups/{group}"))["processes"], 0);
    }
    let metrics = running.said(&["metrics"]);
    assert!(metrics.contains("isotherm_group_processes{group=\"machine\"} 0"), "{metrics}");
    let of_cgroups = "isotherm_cgroup_memory_bytes{group=\"machine\"";
    assert!(!metrics.contains(of_cgroups), "its memory is of no cgroup: {metrics}");
    running.end();
}
